/* A server without a tokenizer needs none of these. */
#include "core/base/assert.h"
#include "core/model/tokenizer.h"

const char *gb_tokenizer_bytes(const gb_tokenizer *t, int32_t token, size_t *bytes) { (void)t; (void)token; *bytes = 0; return NULL; }
bool gb_tokenizer_is_special(const gb_tokenizer *t, int32_t token) { (void)t; (void)token; return false; }
int32_t gb_tokenizer_find(const gb_tokenizer *t, const char *content) { (void)t; (void)content; return -1; }
uint32_t gb_tokenizer_size(const gb_tokenizer *t) { (void)t; return 0; }
size_t gb_utf8_push(gb_utf8_stream *s, const char *bytes, size_t n, char *out) { (void)s; (void)bytes; (void)out; GB_ASSERT(n == 0); return 0; }
size_t gb_utf8_flush(gb_utf8_stream *s, char *out) { (void)s; (void)out; return 0; }
