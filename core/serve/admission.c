#include "core/serve/admission.h"

/* --- requests --- */

static int check_tokens(const gb_server_options *o, const gb_request *r, gb_error *err)
{
    if (r->n_tokens == 0) return gb_fail(err, GB_EINVAL, "the prompt is empty: it needs at least one token");
    for (uint32_t i = 0; i < r->n_tokens; i++)
        if (r->tokens[i] < 0 || (uint32_t)r->tokens[i] >= o->vocab)
            return gb_fail(err, GB_EINVAL, "token %d at position %u of the prompt is out of range: the vocabulary has ids 0..%u",
                           r->tokens[i], i, o->vocab - 1);
    return GB_OK;
}

static int check_stops(const gb_server_options *o, const gb_sampling *s, gb_error *err)
{
    for (uint32_t i = 0; i < s->n_stop_ids; i++)
        if (s->stop_ids[i] < 0 || (uint32_t)s->stop_ids[i] >= o->vocab)
            return gb_fail(err, GB_EINVAL, "stop_token_ids[%u] is %d, but the vocabulary has ids 0..%u", i, s->stop_ids[i], o->vocab - 1);
    if (s->n_stop_strings > 0 && !o->tokenizer)
        return gb_fail(err, GB_EUNSUPPORTED, "stop strings need a tokenizer and this model has none: use stop_token_ids");
    return GB_OK;
}

/* How many tokens the request may still generate: the last one is never computed and needs no place in KV. */
static int check_room(const gb_server_options *o, const gb_request *r, uint32_t *room, gb_error *err)
{
    uint64_t kv_positions = (uint64_t)o->blocks_per_engine * GB_BLOCK_TOKENS;
    if (r->n_tokens >= o->max_model_len)
        return gb_fail(err, GB_ECONTEXT, "the prompt has %u tokens, but the context holds %u with at least one to generate: shorten the "
                       "prompt or raise max_model_len", r->n_tokens, o->max_model_len);
    if (r->n_tokens > kv_positions)
        return gb_fail(err, GB_ECONTEXT, "the prompt has %u tokens, but the KV cache of one engine holds %llu: shorten the prompt or "
                       "raise kv_cache_memory", r->n_tokens, (unsigned long long)kv_positions);
    uint64_t rest = kv_positions - r->n_tokens + 1;
    *room = o->max_model_len - r->n_tokens;
    if (rest < *room) *room = (uint32_t)rest;
    return GB_OK;
}

int gb_admission_check(const gb_server_options *o, const gb_request *r, gb_time now, uint32_t *max_tokens, gb_error *err)
{
    uint32_t room = 0;
    int rc = check_tokens(o, r, err);
    if (!rc) rc = gb_sampling_check(r->sampling, err);
    if (!rc) rc = check_stops(o, r->sampling, err);
    if (!rc) rc = check_room(o, r, &room, err);
    if (rc) return rc;
    if (r->deadline <= now) return gb_fail(err, GB_EDEADLINE, "the deadline had passed when the request arrived");
    *max_tokens = r->sampling->max_tokens < room ? r->sampling->max_tokens : room;
    return GB_OK;
}

/* --- options --- */

static int check_range(const char *name, uint64_t value, uint64_t low, uint64_t high, gb_error *err)
{
    if (value >= low && value <= high) return GB_OK;
    return gb_fail(err, GB_EINVAL, "%s is %llu, but must be in %llu..%llu", name, (unsigned long long)value,
                   (unsigned long long)low, (unsigned long long)high);
}

static int check_topology(const gb_server_options *o, gb_error *err)
{
    if (o->ranks % o->engines != 0)
        return gb_fail(err, GB_EINVAL, "%u ranks cannot be shared evenly by %u engines", o->ranks, o->engines);
    for (uint32_t i = 0; i < o->n_end_ids; i++)
        if (o->end_ids[i] < 0 || (uint32_t)o->end_ids[i] >= o->vocab)
            return gb_fail(err, GB_EINVAL, "end token %d is out of range: the vocabulary has ids 0..%u", o->end_ids[i], o->vocab - 1);
    return GB_OK;
}

int gb_admission_check_options(const gb_server_options *o, gb_error *err)
{
    int rc;
    if ((rc = check_range("engines", o->engines, 1, GB_ENGINES_MAX, err))) return rc;
    if ((rc = check_range("ranks", o->ranks, 1, GB_RANKS_MAX, err))) return rc;
    if ((rc = check_range("experts", o->experts, 0, GB_EXPERTS_MAX, err))) return rc;
    if ((rc = check_range("vocab", o->vocab, 1, INT32_MAX, err))) return rc;
    if ((rc = check_range("max_model_len", o->max_model_len, 2, GB_SERVER_MODEL_LEN_MAX, err))) return rc;
    if ((rc = check_range("max_num_seqs", o->max_num_seqs, 1, GB_SERVER_SEQS_MAX, err))) return rc;
    if ((rc = check_range("max_batched_tokens", o->max_batched_tokens, 1, GB_SERVER_BATCHED_TOKENS_MAX, err))) return rc;
    if ((rc = check_range("queue_capacity", o->queue_capacity, 1, GB_SERVER_QUEUE_MAX, err))) return rc;
    if ((rc = check_range("blocks_per_engine", o->blocks_per_engine, 1, GB_SERVER_BLOCKS_MAX, err))) return rc;
    if ((rc = check_range("window_rounds", o->window_rounds, 1, UINT32_MAX, err))) return rc;
    if ((rc = check_range("spare_slots", o->spare_slots, 0, o->experts - o->experts / o->ranks, err))) return rc;
    if (o->private_ranks && (rc = check_range("expert_bytes", o->expert_bytes, 1, UINT64_MAX, err))) return rc;
    if ((rc = check_range("migration_bytes", o->migration_bytes, 1, UINT64_MAX, err))) return rc;
    if ((rc = check_range("n_end_ids", o->n_end_ids, 0, GB_SERVER_END_IDS_MAX, err))) return rc;
    return check_topology(o, err);
}
