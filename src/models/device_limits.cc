#include "models/device_limits.h"

#include <fmt/format.h>

#include "models/decoder_layer.h"
#include "models/kernel_sizes.h"
#include "ops/sampling/device_sample.h"

namespace headrace {
namespace {

bool sampling_fits(const DeviceTraits& device, int64_t vocabulary) {
  DeviceSampleArgs args{};
  args.logits = row_of_no_data(DType::kF32, vocabulary);
  return device_sample_kernels().find(device, args) != nullptr;
}

}  // namespace

Status check_device_limits(const DecoderSpec& spec, const DeviceTraits& device, DType activations) {
  if (device.kind != DeviceKind::kCuda) return ok_status();
  for (int32_t i = 0; i < spec.model.layer_count; ++i) {
    const DecoderLayer layer = make_layer(spec, i);
    HR_RETURN_IF_ERROR(layer.mixer->check_device(device, activations));
    HR_RETURN_IF_ERROR(layer.feed_forward->check_device(device, activations));
    if (layer.network_convolution) {
      return unsupported(
          "convolutions of what layers make have no kernels on a GPU yet: use --device cpu");
    }
  }
  const auto vocabulary_fits = [&](int64_t size) { return sampling_fits(device, size); };
  if (vocabulary_fits(spec.model.vocab_size)) return ok_status();
  return unsupported(fmt::format(
      "a vocabulary of {} tokens is larger than sampling on a GPU takes, which is {}: use --device "
      "cpu",
      spec.model.vocab_size, largest_that_fits(spec.model.vocab_size, vocabulary_fits)));
}

}  // namespace headrace
