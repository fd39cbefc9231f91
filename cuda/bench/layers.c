/* Layers of the whole backend at full shape: a decode step and a prefill, by models of two depths whose difference is what a layer takes, with
   each way that products of experts run; and a decode step while experts are copied. Times are the host's, from a round's begin to its tokens. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/bench/model.h"

enum { SHALLOW = 2, DEEP = 4, STEPS_MAX = 50, WARM_STEPS = 3 };

typedef struct sizes {
    uint32_t batch, context, prompt, steps;
} sizes;

static sizes sizes_of(const gb_bench *b)
{
    return b->emulated ? (sizes){.batch = 3, .context = 5, .prompt = 20, .steps = 2} : (sizes){.batch = 64, .context = 512, .prompt = 8192, .steps = 40};
}

/* Seconds of: a step of one sequence, a step of the batch, the same beside copies, a prefill. */
typedef struct times {
    gb_bench_time one, batch, beside, prefill;
} times;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of steps, in microseconds, and how far the quarters lie from it. */
static int time_steps(gb_bench_model *m, uint32_t first, uint32_t n, uint32_t steps, gb_bench_time *out)
{
    double seconds[STEPS_MAX];
    for (uint32_t i = 0; i < WARM_STEPS; i++) GB_TRY(gb_bench_step(m, first, n, &seconds[0]));
    for (uint32_t i = 0; i < steps; i++) GB_TRY(gb_bench_step(m, first, n, &seconds[i]));
    qsort(seconds, steps, sizeof *seconds, compare);
    out->us = 1e6 * seconds[steps / 2];
    out->spread = (seconds[3 * steps / 4] - seconds[steps / 4]) / seconds[steps / 2];
    return GB_OK;
}

/* --- copies beside steps --- */

typedef struct copier {
    gb_bench_model *model;
    atomic_bool stop;
    unsigned copies;
    int status;
} copier;

static void *copy_on(void *self)
{
    copier *c = self;
    while (!atomic_load(&c->stop) && c->status == GB_OK) {
        c->status = gb_bench_copy_expert(c->model);
        c->copies++;
    }
    return NULL;
}

static int time_beside_copies(gb_bench *b, gb_bench_model *m, uint32_t n, uint32_t steps, gb_bench_time *out)
{
    copier c = {.model = m};
    pthread_t thread;
    if (pthread_create(&thread, NULL, copy_on, &c)) return gb_k_fail(GB_ENOMEM, "no thread for copies");
    int status = time_steps(m, 0, n, steps, out);
    atomic_store(&c.stop, true);
    pthread_join(thread, NULL);
    if (status == GB_OK) status = c.status;
    if (status != GB_OK) return status;
    if (gb_executor_checksum(m->executor, 0, 0) != gb_executor_checksum(m->executor, 0, b->shape.experts))
        gb_bench_wrong(b, "layers: %u copies of an expert, and the copy is not it", c.copies);
    return GB_OK;
}

/* --- one model --- */

static int read_prompts(gb_bench_model *m, uint32_t first, uint32_t n)
{
    double unused;
    for (uint32_t s = first; s < first + n;)
        if (m->computed[s] < m->known[s] - 1 || m->computed[s] == 0) GB_TRY(gb_bench_step(m, s, first + n - s, &unused));
        else s++;
    return GB_OK;
}

/* The last sequence has the first one's prompt and decodes alone: its tokens must be those that the first gets in the batch. */
static void check_company(gb_bench *b, const gb_bench_model *m, const sizes *s)
{
    const int32_t *batched = m->tokens, *alone = m->tokens + (size_t)s->batch * m->limits.positions;
    const uint32_t n = m->known[0] < m->known[s->batch] ? m->known[0] : m->known[s->batch];
    for (uint32_t i = 0; i < n; i++)
        if (batched[i] != alone[i]) {
            gb_bench_wrong(b, "layers: token %u is %d in a batch and %d alone", i, batched[i], alone[i]);
            return;
        }
}

static int time_decode(gb_bench *b, gb_bench_model *m, const sizes *s, times *t)
{
    for (uint32_t i = 0; i <= s->batch; i++) gb_bench_prompt(b, m, i, s->context, i == s->batch ? 0 : i);
    GB_TRY(read_prompts(m, 0, s->batch));
    GB_TRY(read_prompts(m, s->batch, 1));
    GB_TRY(time_steps(m, s->batch, 1, s->steps, &t->one));
    GB_TRY(time_steps(m, 0, s->batch, s->steps, &t->batch));
    if (strcmp(m->limits.experts, "cublas") != 0) check_company(b, m, s);    /* which promises nothing of the kind */
    return time_beside_copies(b, m, s->batch, s->steps, &t->beside);
}

static int time_prefill(gb_bench *b, gb_bench_model *m, const sizes *s, times *t)
{
    double seconds[2];
    for (int i = -1; i < 2; i++) {    /* once to warm up */
        gb_bench_prompt(b, m, 0, s->prompt, 99);
        GB_TRY(gb_bench_step(m, 0, 1, &seconds[i < 0 ? 0 : i]));
    }
    t->prefill.us = 1e6 * (seconds[0] + seconds[1]) / 2;
    t->prefill.spread = (seconds[0] > seconds[1] ? seconds[0] - seconds[1] : seconds[1] - seconds[0]) / (seconds[0] + seconds[1]) * 2;
    return GB_OK;
}

static int time_model(gb_bench *b, uint32_t layers, const char *experts, times *t)
{
    const sizes s = sizes_of(b);
    const uint32_t decoded = s.context + 2 * (WARM_STEPS + s.steps);
    const gb_bench_model_limits limits = {.layers = layers, .sequences = s.batch + 1, .positions = (decoded > s.prompt ? decoded : s.prompt) + 8,
                                          .max_tokens = s.prompt, .experts = experts};
    gb_bench_model m;
    GB_TRY(gb_bench_open_model(b, &m, &limits));
    int status = time_decode(b, &m, &s, t);
    if (status == GB_OK) status = time_prefill(b, &m, &s, t);
    gb_bench_close_model(&m);
    return status;
}

/* --- the step --- */

/* What a layer takes: the difference of the two depths. */
static void report_layer(gb_bench *b, const char *what, const char *experts, const char *size, gb_bench_time shallow, gb_bench_time deep)
{
    char item[64];
    gb_bench_row row = {.step = "layers", .item = item};
    snprintf(item, sizeof item, "%s layer, %s", what, experts);
    snprintf(row.size, sizeof row.size, "%s", size);
    row.time.us = (deep.us - shallow.us) / (DEEP - SHALLOW);
    row.time.spread = shallow.spread > deep.spread ? shallow.spread : deep.spread;
    gb_bench_report(b, &row);
}

static int time_experts(gb_bench *b, const char *experts)
{
    const sizes s = sizes_of(b);
    times shallow, deep;
    char batch[32], prompt[32];
    int status = time_model(b, SHALLOW, experts, &shallow);
    if (status == GB_EINVAL || status == GB_EUNSUPPORTED) {
        printf("experts by %s: not here (%s)\n", experts, gb_k_message());
        return GB_OK;
    }
    GB_TRY(status);
    GB_TRY(time_model(b, DEEP, experts, &deep));
    snprintf(batch, sizeof batch, "%u sequences", s.batch);
    snprintf(prompt, sizeof prompt, "%u tokens", s.prompt);
    report_layer(b, "decode", experts, "1 sequence", shallow.one, deep.one);
    report_layer(b, "decode", experts, batch, shallow.batch, deep.batch);
    report_layer(b, "prefill", experts, prompt, shallow.prefill, deep.prefill);
    if (strcmp(experts, "mma") == 0) {
        gb_bench_row row = {.step = "layers", .item = "decode beside copies", .time = deep.beside, .ratio = deep.beside.us / deep.batch.us};
        snprintf(row.size, sizeof row.size, "%u sequences", s.batch);
        gb_bench_report(b, &row);
    }
    return GB_OK;
}

int gb_bench_layers_step(gb_bench *b)
{
    static const char *const families[] = {"mma", "wgmma", "cublas"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) GB_TRY(time_experts(b, families[i]));
    return GB_OK;
}
