/* logits = W_head rms_norm(x); then a token for each row, on the device. The row of a work that wants logprobs, or whose bans and penalties
   are more than there is room for, comes to the host, where core/model's sampler decides as it does for the cpu. */
#include "cuda/host/context.h"

#include <math.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/model/sampler.h"

int gb_cuda_head(gb_ops *ops, const uint32_t *rows, uint32_t n)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    const gb_model_config *c = &cuda->config;
    GB_TRY(gb_cuda_start(cuda));
    GB_TRY(gb_cuda_wait(cuda, cuda->compute));    /* the rows of the last call have left pinned memory */
    for (uint32_t i = 0; i < n; i++) cuda->pinned_head_rows[i] = (int32_t)rows[i];
    GB_CUDA(cudaMemcpyAsync(cuda->head_rows, cuda->pinned_head_rows, n * sizeof *cuda->head_rows, cudaMemcpyHostToDevice, cuda->compute));
    gb_k_norm_args a = {.h = cuda->head_h, .x = cuda->x, .weight = cuda->final_norm, .index = cuda->head_rows, .n = n, .hidden = c->hidden,
                        .epsilon = c->norm_epsilon};
    GB_TRY(gb_k_norm(&a, cuda->compute));
    return gb_cuda_multiply(cuda, &cuda->head_product, cuda->logits, cuda->head_h, cuda->head, NULL, n, false);
}

static bool has_penalties(const gb_sampling *s)
{
    return s->repetition_penalty != 1 || s->frequency_penalty != 0 || s->presence_penalty != 0;
}

/* A part of 1 as one of 2^64. */
static uint64_t part(double x) { return (uint64_t)ldexp(x, 64); }

static gb_k_choice choice_of(const gb_work *work)
{
    const gb_sampling *s = work->sampling;
    return (gb_k_choice){
        .uniform = part(gb_rng_at(s->seed, work->n_tokens)), .top_p = s->top_p < 1 ? part(s->top_p) | 1 : 0,
        .top_k = (uint32_t)s->top_k, .rate = s->temperature < GB_GREEDY_TEMPERATURE ? 0 : 1 / s->temperature, .min_p = s->min_p,
        .repetition_penalty = s->repetition_penalty, .frequency_penalty = s->frequency_penalty, .presence_penalty = s->presence_penalty,
    };
}

/* A token's edit is listed once and counts on: edit_of_token has its place, from 1. False: no room. */
static bool add_edit(gb_cuda *cuda, uint32_t row, int32_t token, uint32_t what)
{
    uint32_t *at = &cuda->edit_of_token[token];
    if (*at == 0) {
        if (cuda->n_edits == cuda->max_edits) return false;
        cuda->pinned_edits[cuda->n_edits] = (gb_k_edit){.row = row, .token = token};
        *at = ++cuda->n_edits;
    }
    if (what == GB_K_EDIT_BAN) cuda->pinned_edits[*at - 1].what |= what;
    else cuda->pinned_edits[*at - 1].what += what;
    return true;
}

/* Bans and penalties of a work: all of them, or none and false. */
static bool list_edits(gb_cuda *cuda, uint32_t row, const gb_work *work)
{
    uint32_t first = cuda->n_edits;
    bool fits = true;
    for (uint32_t i = 0; has_penalties(work->sampling) && fits && i < work->n_tokens; i++)
        fits = add_edit(cuda, row, work->tokens[i], i >= work->n_prompt);
    for (uint32_t i = 0; fits && i < work->n_banned; i++) fits = add_edit(cuda, row, work->banned[i], GB_K_EDIT_BAN);
    for (uint32_t i = first; i < cuda->n_edits; i++) cuda->edit_of_token[cuda->pinned_edits[i].token] = 0;
    if (!fits) cuda->n_edits = first;
    return fits;
}

static int sample_on_host(gb_cuda *cuda, const gb_pick *pick)
{
    uint32_t vocab = cuda->config.vocab;
    const float *logits = cuda->logits + (size_t)pick->logits_row * vocab;
    GB_CUDA(cudaMemcpyAsync(cuda->pinned_logits, logits, vocab * sizeof *logits, cudaMemcpyDeviceToHost, cuda->compute));
    GB_TRY(gb_cuda_wait(cuda, cuda->compute));
    int status = gb_sampler_pick(pick->out, cuda->pinned_logits, vocab, pick->work, cuda->sampler_scratch);
    if (status != GB_OK) pick->out->token = -1;    /* no numbers: this work fails, its batch mates go on */
    return GB_OK;
}

/* Tokens of logits rows 0 .. rows - 1 by their choices and edits, in pinned memory when this returns. */
static int sample_on_device(gb_cuda *cuda, uint32_t rows)
{
    uint32_t vocab = cuda->config.vocab, n = cuda->n_edits;
    GB_CUDA(cudaMemcpyAsync(cuda->choices, cuda->pinned_choices, rows * sizeof *cuda->choices, cudaMemcpyHostToDevice, cuda->compute));
    if (n) GB_CUDA(cudaMemcpyAsync(cuda->edits, cuda->pinned_edits, n * sizeof *cuda->edits, cudaMemcpyHostToDevice, cuda->compute));
    gb_k_adjust_args e = {.logits = cuda->logits, .edits = cuda->edits, .choices = cuda->choices, .fault = cuda->fault, .n = n, .rows = rows,
                          .vocab = vocab};
    GB_TRY(gb_k_adjust(&e, cuda->compute));
    gb_k_sample_args a = {.out = cuda->sampled, .logits = cuda->logits, .choices = cuda->choices, .n = rows, .vocab = vocab};
    GB_TRY(gb_k_sample(&a, cuda->compute));
    GB_CUDA(cudaMemcpyAsync(cuda->pinned_sampled, cuda->sampled, rows * sizeof *cuda->sampled, cudaMemcpyDeviceToHost, cuda->compute));
    GB_TRY(gb_cuda_wait(cuda, cuda->compute));
    return GB_OK;
}

/* Works that want logprobs, or whose edits find no room, keep their logits as they are. */
int gb_cuda_sample(gb_ops *ops, const gb_pick *picks, uint32_t n)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    bool on_host[GB_CUDA_HEAD_ROWS] = {false};
    uint32_t rows = 0;
    for (uint32_t i = 0; i < n; i++) rows = picks[i].logits_row >= rows ? picks[i].logits_row + 1 : rows;
    memset(cuda->pinned_choices, 0, rows * sizeof *cuda->pinned_choices);
    cuda->n_edits = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = picks[i].logits_row;
        on_host[row] = picks[i].work->sampling->logprobs >= 0 || !list_edits(cuda, row, picks[i].work);
        if (!on_host[row]) cuda->pinned_choices[row] = choice_of(picks[i].work);
    }
    GB_TRY(sample_on_device(cuda, rows));
    for (uint32_t i = 0; i < n; i++) {
        picks[i].out->token = cuda->pinned_sampled[picks[i].logits_row];
        picks[i].out->cancelled = false;
        if (on_host[picks[i].logits_row]) GB_TRY(sample_on_host(cuda, &picks[i]));
    }
    return GB_OK;
}
