/* Unicode normalization form C as the reference tokenizer computes it: the NFC of an old Unicode, to which later characters
   are inert. Time is linear in the text whatever its marks. */
#ifndef GB_MODEL_NFC_H
#define GB_MODEL_NFC_H

#include <stddef.h>

/* Normalizes valid UTF-8. *out is text itself when nothing changes (*owned NULL), else *owned, which the caller frees.
   GB_ENOMEM. */
int gb_nfc(const char **out, size_t *out_bytes, char **owned, const char *text, size_t bytes);

#endif
