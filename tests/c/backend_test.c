#include "bindings/c/backend.h"

#include <stdlib.h>

#include "tests/check.h"

static char last_line[1024];

static void keep_line(void *self, gb_log_level level, const char *line)
{
    (void)self;
    (void)level;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void check_refused(const char *variant, int status, const char *part)
{
    const gb_backend *backend = NULL;
    gb_backend_device device;
    gb_error err = {0};
    char directory[1024];
    snprintf(directory, sizeof directory, "%s%s", PLUGINS, variant);
    CHECK_EQ(gb_backend_choose(&backend, &device, "cuemu", directory, &err), status);
    CHECK_CONTAINS(err.text, part);
}

static void a_plugin_that_finds_its_device_is_taken(void)
{
    const gb_backend *backend = NULL;
    gb_backend_device device;
    gb_error err = {0};
    CHECK_EQ(gb_backend_choose(&backend, &device, "cuemu", PLUGINS "GOOD", &err), GB_OK);
    CHECK_STR(err.text, "");
    CHECK_STR(backend->name, "cuemu");
    CHECK_STR(device.name, "fixture");
    CHECK_EQ(device.memory, 12345);
}

static void plugins_that_cannot_run_say_why_and_what_to_do(void)
{
    check_refused("NOWHERE", GB_ENOTFOUND, "use --backend cpu");
    check_refused("NO_SYMBOL", GB_EVERSION, "has no " GB_BACKEND_SYMBOL);
    check_refused("NO_DEVICE", GB_EUNSUPPORTED, "nothing to run on");
}

static void plugins_of_another_abi_or_build_are_refused(void)
{
    check_refused("OLD_ABI", GB_EVERSION, "another version of gimbal");
    check_refused("OTHER_BUILD", GB_EVERSION, "another version of gimbal");
}

static void cpu_needs_no_plugin(void)
{
    const gb_backend *backend = NULL;
    gb_backend_device device;
    CHECK_EQ(gb_backend_choose(&backend, &device, "cpu", PLUGINS "NOWHERE", NULL), GB_OK);
    CHECK_STR(backend->name, "cpu");
    CHECK_EQ(device.memory, 0);
}

static void auto_falls_back_to_the_cpu_and_says_why_in_one_line(void)
{
    const gb_backend *backend = NULL;
    gb_backend_device device;
    gb_error err = {0};
    gb_log_set_sink(keep_line, NULL, GB_LOG_INFO);
    CHECK_EQ(gb_backend_choose(&backend, &device, "auto", PLUGINS "NOWHERE", &err), GB_OK);
    gb_log_set_sink(NULL, NULL, GB_LOG_INFO);
    CHECK_STR(backend->name, "cpu");
    CHECK_STR(err.text, "");
    CHECK_CONTAINS(last_line, "the cpu runs the model. backend cuda");
    CHECK_STR(device.name, "cpu");
}

/* Driver or not, the library is not there. */
static void cuda_that_is_wished_by_name_does_not_fall_back(void)
{
    const gb_backend *backend = NULL;
    gb_backend_device device;
    gb_error err = {0};
    CHECK_EQ(gb_backend_choose(&backend, &device, "cuda", PLUGINS "NOWHERE", &err), GB_ENOTFOUND);
    CHECK_CONTAINS(err.text, "backend cuda");
}

TESTS(TEST(a_plugin_that_finds_its_device_is_taken), TEST(plugins_that_cannot_run_say_why_and_what_to_do),
      TEST(plugins_of_another_abi_or_build_are_refused), TEST(cpu_needs_no_plugin), TEST(auto_falls_back_to_the_cpu_and_says_why_in_one_line),
      TEST(cuda_that_is_wished_by_name_does_not_fall_back))
