#include "bindings/c/version.h"

const char *gb_version(void) { return GB_VERSION; }
const char *gb_git_revision(void) { return GB_GIT_REVISION; }
