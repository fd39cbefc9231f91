/* What the reference tokenizer believes about characters, whatever Unicode the libraries at hand know. Pure. */
#ifndef GB_MODEL_UNICODE_H
#define GB_MODEL_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum gb_unicode_kind { GB_UNICODE_OTHER, GB_UNICODE_LETTER, GB_UNICODE_NUMBER, GB_UNICODE_MARK, GB_UNICODE_SPACE } gb_unicode_kind;

/* The kind of a character outside ASCII, as split patterns see it. */
gb_unicode_kind gb_unicode_kind_of(int32_t character);

/* Newer than the reference's NFC: it neither moves nor composes. */
bool gb_unicode_inert(int32_t character);

#endif
