/* What the purity test must catch. */
#include <time.h>

time_t serve_impure_now(void);

time_t serve_impure_now(void) { return time(NULL); }
