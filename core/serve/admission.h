/* Checks at the door of the serving core: what can never be served is refused with a sentence. */
#ifndef GB_SERVE_ADMISSION_H
#define GB_SERVE_ADMISSION_H

#include "core/serve/server.h"

/* GB_OK and how many tokens the request may generate: max_tokens, cut to what the context and the KV cache of one engine
   leave. Else GB_EINVAL, GB_ECONTEXT or GB_EDEADLINE. */
int gb_admission_check(const gb_server_options *options, const gb_request *request, gb_time now, uint32_t *max_tokens, gb_error *err);

/* The options of a new server. */
int gb_admission_check_options(const gb_server_options *options, gb_error *err);

#endif
