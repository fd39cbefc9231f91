/* Where the ranks of a backend are: on one device, or with a device each on threads or in processes. */
#ifndef GB_CUDA_LAYOUT_H
#define GB_CUDA_LAYOUT_H

#include "core/forward/backend.h"

typedef enum gb_cuda_layout { GB_CUDA_ONE, GB_CUDA_THREADS, GB_CUDA_PROCESSES } gb_cuda_layout;

/* What options->layout comes to where so many devices can be seen. "auto" takes threads when there is a device for each of several ranks
   and the model can be split so. GB_EINVAL, or GB_EUNSUPPORTED when devices are missing, with what to change. */
int gb_cuda_choose_layout(gb_cuda_layout *out, const gb_model_config *config, const gb_backend_options *options, uint32_t devices, gb_error *err);

#endif
