/* How a request wants its tokens chosen. gb_sampling_default is "greedy off, everything neutral"; values are checked
   once, where they enter the house (gb_sampling_check). */
#ifndef GB_FLOW_SAMPLING_H
#define GB_FLOW_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"

enum {
    GB_STOP_IDS_MAX = 16,
    GB_STOP_STRINGS_MAX = 16,
    GB_STOP_STRING_BYTES = 256,    /* of one stop string */
    GB_TOP_LOGPROBS_MAX = 20,
    GB_TOP_K_MAX = 1 << 20,
    GB_TEMPERATURE_MAX = 100,
    GB_PENALTY_MAX = 2,               /* presence and frequency: from -2 */
    GB_REPETITION_PENALTY_MAX = 10,
};

typedef struct gb_sampling {
    float temperature;           /* 0 = greedy; at most 100 */
    float top_p;                 /* (0, 1]; 1 = off */
    float min_p;                 /* [0, 1]; 0 = off */
    int32_t top_k;               /* 0 = off */
    float presence_penalty;      /* [-2, 2], on generated tokens */
    float frequency_penalty;     /* [-2, 2], on generated tokens */
    float repetition_penalty;    /* (0, 10], on prompt and generated tokens; 1 = off */
    bool has_seed;               /* false: the server draws the seed when the request enters it */
    uint64_t seed;
    int32_t logprobs;            /* -1 = none, else how many of the most likely tokens to report beside the chosen one */
    uint32_t max_tokens;         /* >= 1 */
    uint32_t min_tokens;         /* ends and stop ids cannot be sampled before */
    bool ignore_eos;             /* the model's end tokens do not end the request */
    bool include_stop;           /* the stop string stays in the text */
    uint32_t n_stop_ids, n_stop_strings;
    int32_t stop_ids[GB_STOP_IDS_MAX];
    uint16_t stop_string_bytes[GB_STOP_STRINGS_MAX];
    char stop_strings[GB_STOP_STRINGS_MAX][GB_STOP_STRING_BYTES];
} gb_sampling;

void gb_sampling_default(gb_sampling *sampling);    /* temperature 1, no limits but max_tokens 1 */

/* GB_EINVAL and a sentence naming the field, its value and its range. */
int gb_sampling_check(const gb_sampling *sampling, gb_error *err);

#endif
