/* weights, experts = top K of softmax(h W_r^T) over all experts, divided by their sum when norm_topk_prob; all in float32.
   Highest first, and the lower expert first among equal probabilities. */
#include "core/cpu/context.h"

#include <math.h>

enum { CHUNK_ROWS = 8 };

static void softmax(float *p, uint32_t n)
{
    float highest = p[0], sum = 0;
    for (uint32_t e = 1; e < n; e++) highest = p[e] > highest ? p[e] : highest;
    for (uint32_t e = 0; e < n; e++) {
        p[e] = expf(p[e] - highest);
        sum += p[e];
    }
    for (uint32_t e = 0; e < n; e++) p[e] /= sum;
}

/* Insertion into a list of the K best so far; probabilities come in the order of experts, so equals stay behind. */
static void choose(int32_t *experts, float *weights, const float *p, uint32_t n, uint32_t K)
{
    uint32_t filled = 0;
    for (uint32_t e = 0; e < n; e++) {
        if (filled == K && !(p[e] > weights[K - 1])) continue;
        uint32_t at = filled < K ? filled++ : K - 1;
        for (; at > 0 && p[e] > weights[at - 1]; at--) {
            weights[at] = weights[at - 1];
            experts[at] = experts[at - 1];
        }
        weights[at] = p[e];
        experts[at] = (int32_t)e;
    }
}

static void normalize(float *weights, uint32_t K)
{
    float sum = 0;
    for (uint32_t k = 0; k < K; k++) sum += weights[k];
    for (uint32_t k = 0; k < K; k++) weights[k] /= sum;
}

static void route_rows(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    gb_cpu *cpu = self;
    uint32_t E = cpu->config.experts, K = cpu->config.experts_per_token;
    (void)thread;
    for (uint32_t r = begin; r < end; r++) {
        float *p = cpu->router_logits + (size_t)r * E, *weights = cpu->expert_weights + (size_t)r * K;
        softmax(p, E);
        choose(cpu->experts + (size_t)r * K, weights, p, E, K);
        if (cpu->config.norm_topk_prob) normalize(weights, K);
    }
}

int gb_cpu_router(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    gb_cpu_multiply(cpu, cpu->rung, cpu->router_logits, cpu->config.experts, cpu->h, cpu->config.hidden,
                    &cpu->weights.moe[moe_layer].router, rows->n);
    gb_threads_for(cpu->threads, rows->n, CHUNK_ROWS, route_rows, cpu);
    return GB_OK;
}
