#include "stack/compute_choice.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weights/model_family.h"

namespace headrace {
namespace {

// Types that dummy matrices may have.
bool is_dummy_dtype(DType dtype) {
  constexpr std::array kTypes = {DType::kF32,  DType::kF16,  DType::kBF16,
                                 DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};
  return std::find(kTypes.begin(), kTypes.end(), dtype) != kTypes.end();
}

// On a GPU a folder of F16 weights is computed in F16, as its maker did. A GGUF file's F16 is no
// such promise: many were BF16 before, and activations of some overflow F16. Block types are
// unpacked to F16 where the family's activations are known to stay far below its largest number.
bool is_f16(const LoadOptions& options, const ModelWeights& weights, SourceKind source) {
  if (options.dtype) return options.dtype == DType::kF16;
  if (source == SourceKind::kHuggingFace) return weights.weight_types == "F16";
  return !has_float_matrices(weights) && activations_fit_f16(weights.config);
}

}  // namespace

Status check_load_options(const LoadOptions& options, bool on_gpu) {
  const bool dummy = options.format == LoadFormat::kDummy;
  const bool half = options.dtype == DType::kF16 || options.dtype == DType::kBF16;
  if (options.dtype && options.dtype != DType::kF32 && !(half && on_gpu) &&
      !(dummy && is_dummy_dtype(*options.dtype))) {
    return invalid_argument(
        fmt::format("--dtype {} is not supported{}: use auto or float32{}",
                    name_of(kArithmeticTypes, options.dtype), half ? " on the CPU" : "",
                    dummy ? ", or for dummy weights float16, bfloat16, q8_0, q4_0, q4_1" : ""),
        "dtype");
  }
  if (options.dummy_sharpness != 1.0 && !dummy) {
    return invalid_argument("--dummy-sharpness is of random weights: add --load-format dummy",
                            "dummy-sharpness");
  }
  if (options.quantise_to && options.dtype == DType::kF32) {
    return invalid_argument("--quantization and --dtype float32 exclude each other",
                            "quantization");
  }
  if (options.quantise_to == DType::kF8 && !on_gpu) {
    return invalid_argument("--quantization fp8 is of GPUs: use q8_0 on a CPU", "quantization");
  }
  if (options.block_weights == BlockWeights::kPacked && options.dtype == DType::kF32) {
    return invalid_argument("--block-weights packed and --dtype float32 exclude each other",
                            "block-weights");
  }
  if (options.block_weights == BlockWeights::kUnpacked && !on_gpu) {
    return invalid_argument("--block-weights unpacked is of a GPU: on a CPU they stay packed",
                            "block-weights");
  }
  if (options.quantise_to && options.block_weights == BlockWeights::kUnpacked) {
    return invalid_argument("--quantization and --block-weights unpacked exclude each other",
                            "block-weights");
  }
  return ok_status();
}

ComputeType compute_type(const LoadOptions& options, const ModelWeights& weights, SourceKind source,
                         bool on_gpu) {
  if (options.dtype == DType::kF32) return ComputeType::kFloat32;
  if (on_gpu) {
    return is_f16(options, weights, source) ? ComputeType::kFloat16 : ComputeType::kFast;
  }
  return options.activation_bits == 16 ? ComputeType::kFastWide : ComputeType::kFast;
}

bool unpacks_blocks(const LoadOptions& options, const ModelWeights& weights,
                    const DeviceTraits& device) {
  if (options.block_weights != BlockWeights::kAuto) {
    return options.block_weights == BlockWeights::kUnpacked;
  }
  // What is so small is bound by launches, and kernels of matrices need fewer.
  constexpr int64_t kShareOfMemory = 50;
  return !options.quantise_to &&
         2 * weights.parameter_count <= device.memory_bytes / kShareOfMemory;
}

bool packs_experts(const LoadOptions& options, const ModelWeights& weights,
                   const DeviceTraits& device, int64_t gpus) {
  const bool float8 = weights.weight_types.starts_with("E4M3");  // no block type
  if (options.dtype == DType::kF32 || options.quantise_to == DType::kF8 || float8) return false;
  if (options.quantise_to) return true;
  if (options.block_weights != BlockWeights::kAuto) {
    return options.block_weights == BlockWeights::kPacked;
  }
  // Keys and values want the other half.
  return 2 * weights.parameter_count > gpus * device.memory_bytes / 2;
}

bool has_unpacked_experts(const LoadOptions& options, const ModelWeights& weights,
                          const DeviceTraits& device, int64_t gpus) {
  return weights.config.experts.count > 0 && options.dtype != DType::kF32 &&
         (options.quantise_to || !has_float_matrices(weights)) &&
         !packs_experts(options, weights, device, gpus);
}

bool has_float_matrices(const ModelWeights& weights) {
  const std::string& types = weights.weight_types;
  return types.starts_with("F") || types.starts_with("BF");
}

}  // namespace headrace
