/* The wrappers of tma.cuh and wgmma.cuh: tiles brought by tensor copies and multiplied by a warpgroup are the product of their matrices,
   with zeros beyond the ends. On a GPU of capability 9.0 the same test checks the PTX, and that the number of columns changes no bits; on another it says nothing. */
#include "tests/cuda/device.h"

#include "cuda/kernels/tensor_map.h"

int test_multiply_tile(uint32_t columns, float *d, uint16_t *t, const uint16_t *a, int matrices, int z, const uint16_t *b, uint32_t rows, uint32_t k,
                       cudaStream_t stream);

enum { K = 72, MATRICES = 3, COLUMNS = 128 };    /* of k, 64 and then 8 */

typedef struct product {
    uint16_t a[MATRICES * 64 * K], b[COLUMNS * K], turned[COLUMNS * 64];
    float d[64 * COLUMNS];
} product;

static void multiply(product *p, uint32_t columns, uint32_t rows, int z)
{
    gb_rng rng;
    fresh_rng(&rng, 4);
    fill_bf16(p->a, MATRICES * 64 * K, 1, &rng);
    fill_bf16(p->b, COLUMNS * K, 1, &rng);
    float *d = device_new((size_t)64 * columns, sizeof *d);
    uint16_t *turned = device_new((size_t)64 * columns, sizeof *turned);
    CHECK_EQ(test_multiply_tile(columns, d, turned, DEVICE_COPY(p->a), MATRICES, z, device_copy(p->b, (size_t)rows * K, 2), rows, K, 0), GB_OK);
    device_read(p->d, d, (size_t)64 * columns, sizeof *d);
    device_read(p->turned, turned, (size_t)64 * columns, sizeof *turned);
    device_free_all();
}

static void check_product(const product *p, uint32_t columns, uint32_t rows, int z)
{
    for (uint32_t r = 0; r < 64; r++)
        for (uint32_t c = 0; c < columns; c++) {
            double want = 0;
            for (uint32_t k = 0; k < K && c < rows; k++)
                want += (double)gb_bf16_to_f32(p->a[(z * 64 + r) * K + k]) * (double)gb_bf16_to_f32(p->b[c * K + k]);
            CHECK_NEAR(p->d[r * columns + c], want, 1e-5);
            CHECK_EQ(p->turned[c * 64 + r], gb_f32_to_bf16(p->d[r * columns + c]));
        }
}

static void a_warpgroup_multiplies_tiles_that_tensor_copies_brought(void)
{
    static const struct { uint32_t columns, rows; } shapes[] = {{8, 8}, {8, 3}, {64, 64}, {64, 50}, {128, 128}, {128, 1}};
    static product p;
    for (size_t i = 0; device_is_hopper() && i < sizeof shapes / sizeof *shapes; i++) {
        multiply(&p, shapes[i].columns, shapes[i].rows, (int)i % MATRICES);
        check_product(&p, shapes[i].columns, shapes[i].rows, (int)i % MATRICES);
    }
}

/* What batch invariance of the experts stands on. */
static void an_element_has_the_same_bits_in_products_of_any_width(void)
{
    static product narrow, wide;
    static const uint32_t widths[] = {64, 128};
    if (!device_is_hopper()) return;
    multiply(&narrow, 8, 8, 1);
    for (int i = 0; i < 2; i++) {
        multiply(&wide, widths[i], 100 < widths[i] ? 100 : widths[i], 1);
        for (uint32_t r = 0; r < 64; r++) CHECK(memcmp(narrow.d + r * 8, wide.d + r * widths[i], 8 * sizeof *narrow.d) == 0);
    }
}

static void a_tensor_that_the_driver_refuses_is_named(void)
{
    uint16_t *memory = device_new(64 * 64, 2);
    gb_k_tensor odd = {memory, 12, 4, 0, 0, 8}, crooked = {memory + 1, 64, 4, 0, 0, 8}, tall = {memory, 64, 4, 0, 0, 257};
    CUtensorMap map;
    if (!gb_k_has_tensor_maps()) return;
    CHECK_EQ(gb_k_tensor_map(&map, &odd), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "refuses a tensor of 12 x 4 x 0");
    CHECK_EQ(gb_k_tensor_map(&map, &crooked), GB_EINVAL);
    CHECK_EQ(gb_k_tensor_map(&map, &tall), GB_EINVAL);
    device_free_all();
}

TESTS(TEST(a_warpgroup_multiplies_tiles_that_tensor_copies_brought), TEST(an_element_has_the_same_bits_in_products_of_any_width),
      TEST(a_tensor_that_the_driver_refuses_is_named))
