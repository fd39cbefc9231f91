/* The grouped products of experts against float64, and rows against themselves in other company. */
#include "cuda/host/context.h"
#include "tests/cuda/device.h"

#include <stdlib.h>

enum { PROCESSORS = 2 };

typedef struct scene {
    uint32_t hidden, width, slots, places, rows;
    uint32_t offsets[16];
    int32_t place_of_slot[16];
    uint16_t *weights, *in, *gated, *out;
    gb_k_experts_args args;
} scene;

static size_t place_elements(const scene *s) { return (size_t)3 * s->width * s->hidden; }

static void make_scene(scene *s, uint32_t hidden, uint32_t width, uint32_t slots, const uint32_t *counts, uint64_t seed)
{
    gb_rng rng;
    fresh_rng(&rng, seed);
    *s = (scene){.hidden = hidden, .width = width, .slots = slots, .places = slots + 1};
    for (uint32_t i = 0; i < slots; i++) {
        s->place_of_slot[i] = (int32_t)((i + 1) % s->places);
        s->offsets[i + 1] = s->offsets[i] + counts[i];
    }
    s->rows = s->offsets[slots];
    s->weights = malloc(s->places * place_elements(s) * 2);
    s->in = malloc((size_t)s->rows * hidden * 2);
    s->gated = malloc((size_t)s->rows * width * 2);
    s->out = malloc((size_t)s->rows * hidden * 2);
    fill_bf16(s->weights, s->places * place_elements(s), 0.2f, &rng);
    fill_bf16(s->in, (size_t)s->rows * hidden, 1, &rng);
}

/* Our two families of kernels, by the same arguments. */
typedef struct family {
    const char *name;
    int (*gate_up)(const gb_k_experts_args *, cudaStream_t), (*down)(const gb_k_experts_args *, cudaStream_t);
} family;

static const family families[] = {{"mma", gb_k_experts_gate_up, gb_k_experts_down}, {"wgmma", gb_k_experts_wgmma_gate_up, gb_k_experts_wgmma_down}};

static int n_families(void) { return device_is_hopper() ? 2 : 1; }

static void run(scene *s, const family *by)
{
    s->args = (gb_k_experts_args){
        .in = device_copy(s->in, (size_t)s->rows * s->hidden, 2), .out = device_new((size_t)s->rows * s->width, 2),
        .offsets = device_copy(s->offsets, s->slots + 1, 4), .fault = fault_new(), .max_rows = s->rows, .processors = PROCESSORS,
        .pool = {device_copy(s->weights, s->places * place_elements(s), 2), device_copy(s->place_of_slot, s->slots, 4), s->places, s->slots, s->hidden,
                 s->width},
    };
    CHECK_EQ(by->gate_up(&s->args, 0), GB_OK);
    device_read(s->gated, s->args.out, (size_t)s->rows * s->width, 2);
    s->args.in = s->args.out;
    s->args.out = device_new((size_t)s->rows * s->hidden, 2);
    CHECK_EQ(by->down(&s->args, 0), GB_OK);
    device_read(s->out, s->args.out, (size_t)s->rows * s->hidden, 2);
}

static void end_scene(scene *s)
{
    free(s->weights);
    free(s->in);
    free(s->gated);
    free(s->out);
    device_free_all();
}

static double dot(const uint16_t *a, const uint16_t *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)gb_bf16_to_f32(a[i]) * gb_bf16_to_f32(b[i]);
    return sum;
}

/* Within the rounding of the output. down is given the kernel's own gated values. */
static void check_scene(const scene *s)
{
    for (uint32_t slot = 0; slot < s->slots; slot++)
        for (uint32_t r = s->offsets[slot]; r < s->offsets[slot + 1]; r++) {
            const uint16_t *gate = s->weights + (uint32_t)s->place_of_slot[slot] * place_elements(s);
            const uint16_t *up = gate + (size_t)s->width * s->hidden, *down = up + (size_t)s->width * s->hidden;
            const uint16_t *in = s->in + (size_t)r * s->hidden, *gated = s->gated + (size_t)r * s->width;
            for (uint32_t f = 0; f < s->width; f++) {
                double g = dot(gate + f * s->hidden, in, s->hidden), want = g / (1 + exp(-g)) * dot(up + f * s->hidden, in, s->hidden);
                CHECK_NEAR(gb_bf16_to_f32(gated[f]), want, 1e-5 + 0.0045 * fabs(want));
            }
            for (uint32_t o = 0; o < s->hidden; o++) {
                double want = dot(down + o * s->width, gated, s->width);
                CHECK_NEAR(gb_bf16_to_f32(s->out[(size_t)r * s->hidden + o]), want, 1e-5 + 0.0045 * fabs(want));
            }
        }
    CHECK_EQ(fault_read(s->args.fault).kind, GB_K_FAULT_NONE);
}

static void check_shape(uint32_t hidden, uint32_t width, uint32_t slots, const uint32_t *counts, uint64_t seed)
{
    for (int f = 0; f < n_families(); f++) {
        scene s;
        make_scene(&s, hidden, width, slots, counts, seed);
        run(&s, &families[f]);
        check_scene(&s);
        end_scene(&s);
    }
}

static void few_rows_a_slot_agree_with_float64(void) { check_shape(128, 64, 5, (const uint32_t[]){1, 0, 9, 8, 3}, 1); }

static void many_rows_a_slot_agree_with_float64(void)
{
    check_shape(192, 64, 3, (const uint32_t[]){70, 0, 64}, 2);
    check_shape(64, 48, 2, (const uint32_t[]){130, 17}, 11);
}

static void sizes_that_fill_no_tile_agree_with_float64(void)
{
    check_shape(72, 40, 2, (const uint32_t[]){2, 5}, 3);
    check_shape(8, 24, 1, (const uint32_t[]){33}, 4);
    check_shape(328, 136, 2, (const uint32_t[]){1, 2}, 12);
    check_shape(264, 200, 1, (const uint32_t[]){66}, 13);
}

/* More stages than the longest pipeline has, over the ends of several tiles. */
static void a_pipeline_that_wraps_agrees_with_float64(void) { check_shape(904, 72, 2, (const uint32_t[]){7, 2}, 14); }

/* Alone, in a small group, in larger ones that take the other tiles. */
static void check_companies(const family *by)
{
    static const uint32_t companies[][2] = {{1, 0}, {3, 2}, {40, 3}, {100, 90}};
    uint16_t *first = NULL;
    for (size_t i = 0; i < sizeof companies / sizeof *companies; i++) {
        scene s;
        gb_rng rng;
        make_scene(&s, 128, 64, 2, companies[i], 5);
        fresh_rng(&rng, 6);
        uint32_t row = companies[i][0] - 1;
        fill_bf16(s.in + row * s.hidden, s.hidden, 1, &rng);
        run(&s, by);
        if (!first) {
            first = malloc(s.hidden * 2);
            memcpy(first, s.out + row * s.hidden, s.hidden * 2);
        }
        CHECK(memcmp(first, s.out + row * s.hidden, s.hidden * 2) == 0);
        end_scene(&s);
    }
    free(first);
}

static void a_row_has_the_same_bits_in_any_company(void)
{
    for (int f = 0; f < n_families(); f++) check_companies(&families[f]);
}

static void a_slot_without_place_is_a_fault_only_when_rows_go_there(void)
{
    for (int f = 0; f < n_families(); f++) {
        scene s;
        make_scene(&s, 16, 16, 3, (const uint32_t[]){2, 0, 1}, 7);
        s.place_of_slot[1] = -1;
        run(&s, &families[f]);
        CHECK_EQ(fault_read(s.args.fault).kind, GB_K_FAULT_NONE);
        s.place_of_slot[2] = (int32_t)s.places;
        run(&s, &families[f]);
        gb_k_fault fault = fault_read(s.args.fault);
        CHECK_EQ(fault.kind, GB_K_FAULT_SLOT);
        CHECK_EQ(fault.value, 2);
        end_scene(&s);
    }
}

static void shapes_that_do_not_fit_are_refused_and_no_rows_are_no_work(void)
{
    for (int f = 0; f < n_families(); f++) {
        gb_k_experts_args a = {.pool = {.places = 1, .slots = 1, .hidden = 20, .width = 16}, .max_rows = 1, .processors = 1};
        CHECK_EQ(families[f].gate_up(&a, 0), GB_EINVAL);
        CHECK_CONTAINS(gb_k_message(), "20 x 16");
        a.pool.hidden = 16;
        a.pool.slots = 2;
        CHECK_EQ(families[f].down(&a, 0), GB_EINVAL);
        CHECK_CONTAINS(gb_k_message(), "2 slots over 1 places");
        a.pool.slots = 1;
        a.max_rows = 0;
        CHECK_EQ(families[f].gate_up(&a, 0), GB_OK);
        a.processors = 0;
        CHECK_EQ(families[f].down(&a, 0), GB_EINVAL);
    }
}

/* --- cuBLAS --- */

static void silu_of_products_agrees_with_float64(void)
{
    enum { N = 3, WIDTH = 1032 };
    static float sums[N * 2 * WIDTH];
    static uint16_t out[N * WIDTH];
    gb_rng rng;
    fresh_rng(&rng, 8);
    fill_f32(sums, N * 2 * WIDTH, 4, &rng);
    gb_k_silu_args a = {.out = device_new(N * WIDTH, sizeof *out), .sums = DEVICE_COPY(sums), .n = N, .width = WIDTH};
    CHECK_EQ(gb_k_silu(&a, 0), GB_OK);
    device_read(out, a.out, N * WIDTH, sizeof *out);
    for (uint32_t r = 0; r < N; r++)
        for (uint32_t f = 0; f < WIDTH; f++) {
            double gate = sums[r * 2 * WIDTH + f], want = gate / (1 + exp(-gate)) * sums[(r * 2 + 1) * WIDTH + f];
            CHECK_NEAR(gb_bf16_to_f32(out[r * WIDTH + f]), want, 1e-6 + 0.004 * fabs(want));
        }
    a.n = 0;
    CHECK_EQ(gb_k_silu(&a, 0), GB_OK);
    a.width = 12;
    CHECK_EQ(gb_k_silu(&a, 0), GB_EINVAL);
    device_free_all();
}

static gb_cuda *context_for(const scene *s, const char *experts, int status)
{
    gb_cuda *cuda = calloc(1, sizeof *cuda);
    cuda->config.expert_intermediate = s->width;
    cuda->base.info.slots = s->slots;
    cuda->processors = PROCESSORS;
    cuda->capability = 90;
    cuda->gated = device_new((size_t)s->rows * s->width, 2);
    cuda->expert_out = device_new((size_t)s->rows * s->hidden, 2);
    cuda->fault = fault_new();
    CHECK_EQ(gb_cuda_experts_open(cuda, experts), status);
    return cuda;
}

static void free_context(gb_cuda *cuda)
{
    device_free_all();
    gb_cuda_experts_close(cuda);
    gb_cuda_give_back(cuda);
    free(cuda);
}

/* Through the host's choice, into s->gated and s->out. */
static int run_chosen(scene *s, gb_cuda *cuda)
{
    s->args = (gb_k_experts_args){
        .in = device_copy(s->in, (size_t)s->rows * s->hidden, 2), .offsets = device_copy(s->offsets, s->slots + 1, 4), .max_rows = s->rows,
        .pool = {device_copy(s->weights, s->places * place_elements(s), 2), device_copy(s->place_of_slot, s->slots, 4), s->places, s->slots, s->hidden,
                 s->width},
    };
    int status = gb_cuda_run_experts(cuda, &s->args);
    s->args.fault = cuda->fault;
    device_read(s->gated, cuda->gated, (size_t)s->rows * s->width, 2);
    device_read(s->out, cuda->expert_out, (size_t)s->rows * s->hidden, 2);
    return status;
}

/* The second group is more than one piece of gate and up. */
static void every_choice_agrees_with_float64(void)
{
    static const char *const choices[] = {"mma", "wgmma", "cublas", "auto"};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        scene s;
        if (strcmp(choices[i], "wgmma") == 0 && !device_is_hopper()) continue;
        make_scene(&s, 16, 24, 4, (const uint32_t[]){3, 1030, 0, 1}, 9);
        gb_cuda *cuda = context_for(&s, choices[i], GB_OK);
        CHECK_EQ(run_chosen(&s, cuda), GB_OK);
        check_scene(&s);
        free_context(cuda);
        end_scene(&s);
    }
}

static void cublas_ends_a_round_whose_slot_holds_no_expert(void)
{
    scene s;
    make_scene(&s, 16, 16, 3, (const uint32_t[]){2, 0, 1}, 10);
    gb_cuda *cuda = context_for(&s, "cublas", GB_OK);
    CHECK(cuda->eager);
    s.place_of_slot[1] = -1;
    CHECK_EQ(run_chosen(&s, cuda), GB_OK);
    s.place_of_slot[2] = -1;
    CHECK_EQ(run_chosen(&s, cuda), GB_EINTERNAL);
    CHECK_CONTAINS(gb_k_message(), "row 2 has a slot that holds no expert: 2");
    free_context(cuda);
    end_scene(&s);
}

static void another_device_than_hopper_gets_mma(void)
{
    scene s = {.slots = 1};
    gb_cuda cuda = {.capability = 80};
    CHECK_EQ(gb_cuda_experts_open(&cuda, "auto"), GB_OK);
    CHECK_STR(gb_cuda_experts_name(&cuda.expert_runner), "mma");
    cuda.capability = 100;
    CHECK_EQ(gb_cuda_experts_open(&cuda, "wgmma"), GB_EUNSUPPORTED);
    CHECK_CONTAINS(gb_k_message(), "this one has 10.0");
    gb_cuda *hopper = context_for(&s, NULL, GB_OK);
    CHECK_STR(gb_cuda_experts_name(&hopper->expert_runner), "wgmma");
    free_context(hopper);
}

static void a_family_that_does_not_exist_is_refused(void)
{
    scene s = {.slots = 1};
    gb_cuda *cuda = context_for(&s, "magma", GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "there is no magma");
    free_context(cuda);
}

TESTS(TEST(few_rows_a_slot_agree_with_float64), TEST(many_rows_a_slot_agree_with_float64), TEST(sizes_that_fill_no_tile_agree_with_float64),
      TEST(a_pipeline_that_wraps_agrees_with_float64),
      TEST(a_row_has_the_same_bits_in_any_company), TEST(a_slot_without_place_is_a_fault_only_when_rows_go_there),
      TEST(shapes_that_do_not_fit_are_refused_and_no_rows_are_no_work), TEST(silu_of_products_agrees_with_float64),
      TEST(every_choice_agrees_with_float64), TEST(cublas_ends_a_round_whose_slot_holds_no_expert), TEST(another_device_than_hopper_gets_mma),
      TEST(a_family_that_does_not_exist_is_refused))
