/* A backend plugin without a backend, in the variants that backend_test.c asks for. */
#include "core/forward/backend.h"

#define EXPORT __attribute__((visibility("default")))

#ifdef NO_SYMBOL
EXPORT int something_else(void);
int something_else(void) { return 0; }
#else
EXPORT gb_backend_open_fn gimbal_backend_open;

static int probe(gb_backend_device *device, gb_error *err)
{
#ifdef NO_DEVICE
    (void)device;
    return gb_fail(err, GB_EUNSUPPORTED, "backend cuemu: nothing to run on; use --backend cpu");
#else
    (void)err;
    *device = (gb_backend_device){.name = "fixture", .memory = 12345};
    return GB_OK;
#endif
}

const gb_backend *gimbal_backend_open(uint32_t abi)
{
    static gb_backend backend = {.abi = GB_BACKEND_ABI, .sizes = GB_BACKEND_SIZES, .name = "cuemu", .probe = probe};
#ifdef OLD_ABI
    return abi == GB_BACKEND_ABI - 1 ? &backend : NULL;
#endif
#ifdef OTHER_BUILD
    backend.sizes.config++;
#endif
    return abi == GB_BACKEND_ABI ? &backend : NULL;
}
#endif
