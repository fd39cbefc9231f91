/* logits = W_head rms_norm(x); then a token for each row. Greedy works whose logits nobody changes or reports are decided on the
   device; for all others a row of logits comes to the host, where core/model's sampler decides as it does for the cpu. */
#include "cuda/host/context.h"

#include <string.h>

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

static bool is_plainly_greedy(const gb_work *work)
{
    const gb_sampling *s = work->sampling;
    return s->temperature == 0 && work->n_banned == 0 && s->logprobs < 0 && s->repetition_penalty == 1 && s->frequency_penalty == 0 &&
           s->presence_penalty == 0;
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

int gb_cuda_sample(gb_ops *ops, const gb_pick *picks, uint32_t n)
{
    gb_cuda *cuda = (gb_cuda *)ops;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < n; i++) rows = picks[i].logits_row >= rows ? picks[i].logits_row + 1 : rows;
    gb_k_argmax_args a = {.out = cuda->sampled, .logits = cuda->logits, .n = rows, .vocab = cuda->config.vocab};
    GB_TRY(gb_k_argmax(&a, cuda->compute));
    GB_CUDA(cudaMemcpyAsync(cuda->pinned_sampled, cuda->sampled, rows * sizeof *cuda->sampled, cudaMemcpyDeviceToHost, cuda->compute));
    GB_TRY(gb_cuda_wait(cuda, cuda->compute));
    for (uint32_t i = 0; i < n; i++) {
        if (!is_plainly_greedy(picks[i].work)) {
            GB_TRY(sample_on_host(cuda, &picks[i]));
            continue;
        }
        picks[i].out->token = cuda->pinned_sampled[picks[i].logits_row];
        picks[i].out->cancelled = false;
    }
    return GB_OK;
}
