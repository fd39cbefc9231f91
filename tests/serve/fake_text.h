/* Small tokenizers for tests of text: ids 0..255 are the bytes, the tests add tokens of their own from 256 on. */
#ifndef GB_TESTS_SERVE_FAKE_TEXT_H
#define GB_TESTS_SERVE_FAKE_TEXT_H

#include "core/model/tokenizer.h"

enum { FAKE_TEXT_VOCAB = 512 };

/* words: NULL-terminated, ids 256, 257, ... (characters of the byte alphabet, or what is not in it, as it is). special: the same,
   with the ids that follow; they have no text. Freed by the caller. */
gb_tokenizer *fake_tokenizer(const char *const *words, const char *const *special);

#endif
