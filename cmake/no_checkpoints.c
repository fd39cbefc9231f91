/* In the place of the files of core/model that read checkpoints, where GB_DEVICE_ONLY builds without the libraries that they need: models are
   generated there (gb_weights_new), and no rank lives in a process of its own. */
#include "core/model/weights.h"

int gb_weights_open(gb_weights **out, const char *dir, gb_error *err)
{
    *out = NULL;
    return gb_fail(err, GB_EUNSUPPORTED, "%s: this build opens no checkpoints; configure it without GB_DEVICE_ONLY", dir);
}

int gb_weights_check(const gb_weights *w, const gb_model_config *config, gb_error *err)
{
    (void)w;
    (void)config;
    return gb_fail(err, GB_EUNSUPPORTED, "this build opens no checkpoints; configure it without GB_DEVICE_ONLY");
}
