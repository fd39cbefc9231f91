#include "core/flow/sampling.h"

#include <math.h>

void gb_sampling_default(gb_sampling *sampling)
{
    *sampling = (gb_sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1, .logprobs = -1, .max_tokens = 1};
}

static int check_range(const char *name, double value, double low, double high, bool open_low, gb_error *err)
{
    bool inside = isfinite(value) && value <= high && (open_low ? value > low : value >= low);
    if (inside) return GB_OK;
    return gb_fail(err, GB_EINVAL, "%s is %g, but must be in %c%g, %g]", name, value, open_low ? '(' : '[', low, high);
}

static int check_stops(const gb_sampling *s, gb_error *err)
{
    if (s->n_stop_ids > GB_STOP_IDS_MAX)
        return gb_fail(err, GB_EINVAL, "stop_token_ids has %u entries, at most %d are allowed", s->n_stop_ids, GB_STOP_IDS_MAX);
    if (s->n_stop_strings > GB_STOP_STRINGS_MAX)
        return gb_fail(err, GB_EINVAL, "stop has %u strings, at most %d are allowed", s->n_stop_strings, GB_STOP_STRINGS_MAX);
    for (uint32_t i = 0; i < s->n_stop_strings; i++)
        if (s->stop_string_bytes[i] == 0 || s->stop_string_bytes[i] > GB_STOP_STRING_BYTES)
            return gb_fail(err, GB_EINVAL, "stop string %u has %u bytes, but must have 1 to %d", i, s->stop_string_bytes[i], GB_STOP_STRING_BYTES);
    return GB_OK;
}

int gb_sampling_check(const gb_sampling *s, gb_error *err)
{
    int rc;
    if ((rc = check_range("temperature", s->temperature, 0, GB_TEMPERATURE_MAX, false, err))) return rc;
    if ((rc = check_range("top_p", s->top_p, 0, 1, true, err))) return rc;
    if ((rc = check_range("min_p", s->min_p, 0, 1, false, err))) return rc;
    if ((rc = check_range("top_k", s->top_k, 0, GB_TOP_K_MAX, false, err))) return rc;
    if ((rc = check_range("presence_penalty", s->presence_penalty, -GB_PENALTY_MAX, GB_PENALTY_MAX, false, err))) return rc;
    if ((rc = check_range("frequency_penalty", s->frequency_penalty, -GB_PENALTY_MAX, GB_PENALTY_MAX, false, err))) return rc;
    if ((rc = check_range("repetition_penalty", s->repetition_penalty, 0, GB_REPETITION_PENALTY_MAX, true, err))) return rc;
    if ((rc = check_range("logprobs", s->logprobs, -1, GB_TOP_LOGPROBS_MAX, false, err))) return rc;
    if (s->max_tokens == 0) return gb_fail(err, GB_EINVAL, "max_tokens is 0, but must be at least 1");
    if (s->min_tokens > s->max_tokens)
        return gb_fail(err, GB_EINVAL, "min_tokens is %u, above max_tokens %u", s->min_tokens, s->max_tokens);
    return check_stops(s, err);
}
