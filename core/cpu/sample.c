/* A token from each row of logits, by the rules of core/model/sampler.h. Threads share rows. */
#include "core/cpu/context.h"

#include "core/model/sampler.h"

typedef struct sample_job {
    gb_cpu *cpu;
    const gb_pick *picks;
} sample_job;

static void sample_rows(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    sample_job *job = self;
    gb_cpu *cpu = job->cpu;
    uint32_t vocab = cpu->config.vocab;
    for (uint32_t i = begin; i < end; i++) {
        const gb_pick *pick = &job->picks[i];
        float *logits = cpu->logits + (size_t)pick->logits_row * vocab;
        int rc = gb_sampler_pick(pick->out, logits, vocab, pick->work, gb_cpu_scratch(cpu, thread));
        if (rc != GB_OK) pick->out->token = -1;    /* no numbers: this work fails, its batch mates go on */
    }
}

int gb_cpu_sample(gb_ops *ops, const gb_pick *picks, uint32_t n)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    sample_job job = {cpu, picks};
    gb_threads_for(cpu->threads, n, 1, sample_rows, &job);
    return GB_OK;
}
