#include "bindings/cli/synthetic.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

static gb_synthetic tiny(void)
{
    gb_synthetic model;
    gb_threads *threads;
    gb_error err = {0};
    CHECK_EQ(gb_threads_new(&threads, 2, &err), 0);
    CHECK_EQ(gb_synthetic_init(&model, "tiny", threads, &err), 0);
    gb_threads_free(threads);
    return model;
}

/* Computed from the recipe in the header with Python's integers and struct. */
static void values_follow_the_published_recipe(void)
{
    uint16_t v[4];
    gb_synthetic_values(v, "model.embed_tokens.weight", 0.5, 0, 4);
    CHECK_EQ(v[0], 0x3e80);
    CHECK_EQ(v[1], 0xbe99);
    CHECK_EQ(v[2], 0x3f11);
    CHECK_EQ(v[3], 0xbcae);
    gb_synthetic_values(v, "model.layers.11.mlp.gate.weight", 1.5 / 32, 1000, 2);
    CHECK_EQ(v[0], 0xbdf0);
    CHECK_EQ(v[1], 0xbc42);
    gb_synthetic_values(v, "model.layers.5.mlp.experts.63.down_proj.weight", pow(384, -0.5), 393215, 1);
    CHECK_EQ(v[0], 0xbd98);
}

static void tiny_has_the_shape_it_says_and_its_tensors_are_the_recipe_s(void)
{
    gb_synthetic model = tiny();
    CHECK_EQ(model.config.hidden, 256);
    CHECK_EQ(model.config.moe_layers, 6);
    CHECK_EQ(gb_weights_count(model.weights), 3 + 6 * (9 + 3 * 32));
    const gb_tensor *t = gb_weights_find(model.weights, "model.layers.3.mlp.experts.7.up_proj.weight");
    CHECK(t && t->dims[0] == 128 && t->dims[1] == 256);
    uint16_t expected;
    gb_synthetic_values(&expected, t->name, 1.0 / 16, 32767, 1);
    CHECK_EQ(((const uint16_t *)t->data)[32767], expected);
    const gb_tensor *norm = gb_weights_find(model.weights, "model.norm.weight");
    CHECK(norm && norm->n_dims == 1 && ((const uint16_t *)norm->data)[255] == 0x3f80);
    gb_synthetic_deinit(&model);
}

static void what_is_written_loads_as_the_same_weights(void)
{
    char dir[] = "/tmp/gimbal-synthetic-XXXXXX", path[64];
    gb_synthetic model = tiny();
    gb_weights *read = NULL;
    gb_model_config config;
    gb_error err = {0};
    CHECK(mkdtemp(dir) != NULL);
    CHECK_EQ(gb_synthetic_write(&model, dir, &err), 0);
    CHECK_EQ(gb_model_config_load(&config, dir, &err), 0);
    CHECK_EQ(gb_weights_open(&read, dir, &err), 0);
    CHECK_EQ(gb_weights_check(read, &config, &err), 0);
    CHECK_EQ(gb_weights_count(read), gb_weights_count(model.weights));
    for (size_t i = 0; i < gb_weights_count(model.weights); i++) {
        const gb_tensor *t = gb_weights_at(model.weights, i), *r = gb_weights_find(read, t->name);
        CHECK(r && r->bytes == t->bytes && memcmp(r->data, t->data, t->bytes) == 0);
    }
    gb_weights_free(read);
    gb_synthetic_deinit(&model);
    snprintf(path, sizeof path, "%s/config.json", dir), unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir), unlink(path);
    CHECK_EQ(rmdir(dir), 0);
}

static void an_unknown_model_and_a_bad_directory_are_named(void)
{
    gb_synthetic model;
    gb_error err = {0};
    CHECK_EQ(gb_synthetic_init(&model, "m9t", NULL, &err), GB_ENOTFOUND);
    CHECK_CONTAINS(err.text, "m9t");
    model = tiny();
    CHECK_EQ(gb_synthetic_write(&model, "/nowhere/at/all", &err), GB_EIO);
    CHECK_CONTAINS(err.text, "/nowhere/at/all");
    gb_synthetic_deinit(&model);
}

TESTS(TEST(values_follow_the_published_recipe),
      TEST(tiny_has_the_shape_it_says_and_its_tensors_are_the_recipe_s),
      TEST(what_is_written_loads_as_the_same_weights),
      TEST(an_unknown_model_and_a_bad_directory_are_named))
