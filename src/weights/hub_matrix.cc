#include "weights/hub_matrix.h"

#include <array>

#include <fmt/format.h>

#include "weights/gguf.h"
#include "weights/hub_float4.h"
#include "weights/hub_float8.h"
#include "weights/hub_integers.h"
#include "weights/hub_ternary.h"

namespace headrace {
namespace {

struct Suffix {
  std::string_view text;
  const SafetensorsTensor* HubTensors::*member = nullptr;  // nullptr: not read
};

constexpr auto kSuffixes = std::to_array<Suffix>({
    {".qweight", &HubTensors::quants},
    {".weight_packed", &HubTensors::quants},
    {".weight", &HubTensors::quants},
    {".scales", &HubTensors::scales},
    {".weight_scale", &HubTensors::scales},
    {".weight_scale_inv", &HubTensors::scales},
    {".weight_scale_2", &HubTensors::global},
    {".weight_global_scale", &HubTensors::global},
    {".qzeros", &HubTensors::zeros},
    {".weight_zero_point", &HubTensors::zeros},
    {".g_idx", &HubTensors::order},
    {".weight_g_idx", &HubTensors::order},
    {".weight_shape", &HubTensors::shape},
    // Of activations and of the KV cache, which are quantised here as flags say, if at all.
    {".input_scale"},
    {".input_global_scale"},
    {".input_scale_ub"},
    {".input_zero_point"},
    {".output_scale"},
    {".output_zero_point"},
    {".q_scale"},
    {".k_scale"},
    {".v_scale"},
    {".kv_scale"},
});

}  // namespace

Status hub_tensor_error(const SafetensorsTensor& tensor, std::string_view what) {
  return corrupt(fmt::format("tensor {}: {}", printable(tensor.name), what), tensor.name);
}

HubTensorName hub_tensor_name(std::string_view name) {
  for (const Suffix& suffix : kSuffixes) {
    if (!name.ends_with(suffix.text)) continue;
    return {.matrix = name.substr(0, name.size() - suffix.text.size()),
            .member = suffix.member,
            .not_read = suffix.member == nullptr};
  }
  return {};
}

Result<std::unique_ptr<HubMatrix>> HubMatrix::create(const HubTensors& tensors,
                                                     const HubQuantisation& quantisation) {
  const SafetensorsTensor& quants = *tensors.quants;
  if (tensors.scales == nullptr) {
    return hub_tensor_error(quants,
                            "its scales are missing (scales, weight_scale or "
                            "weight_scale_inv beside it)");
  }
  if (tensors.global != nullptr &&
      (quants.type->name != "U8" || tensors.scales->type->name != "F8_E4M3")) {
    return hub_tensor_error(*tensors.global, "is a scale of NVFP4, which this matrix is not");
  }
  if (quants.type->name == "F8_E4M3") return open_hub_float8(tensors, quantisation);
  if (quantisation.method == HubMethod::kBitNet) return open_hub_ternary(tensors, quantisation);
  if (quants.type->name == "U8") return open_hub_float4(tensors);
  return open_hub_integers(tensors, quantisation);
}

std::vector<const SafetensorsTensor*> HubMatrix::all_tensors() const {
  std::vector<const SafetensorsTensor*> all;
  for (const SafetensorsTensor* tensor : {tensors_.quants, tensors_.scales, tensors_.global,
                                          tensors_.zeros, tensors_.order, tensors_.shape}) {
    if (tensor != nullptr) all.push_back(tensor);
  }
  return all;
}

int64_t HubMatrix::bytes() const {
  int64_t bytes = 0;
  for (const SafetensorsTensor* tensor : all_tensors()) bytes += std::ssize(tensor->bytes);
  return bytes;
}

}  // namespace headrace
