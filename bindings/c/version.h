/* What this build is. */
#ifndef GB_C_VERSION_H
#define GB_C_VERSION_H

const char *gb_version(void);         /* "0.1.0" */
const char *gb_git_revision(void);    /* "" outside a checkout */

#endif
