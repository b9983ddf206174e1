// Whether a device's kernels take the sizes of a model. A file may ask for more than any kernel of
// a GPU does; the ops' own tables say so before a weight is read.
#pragma once

#include "models/decoder_spec.h"
#include "tensor/device.h"

namespace headrace {

// kUnsupported, naming the size and what to do. `activations`: Model::activation_dtype().
Status check_device_limits(const DecoderSpec& spec, const DeviceTraits& device, DType activations);

}  // namespace headrace
