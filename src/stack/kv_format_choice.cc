#include "stack/kv_format_choice.h"

#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace headrace {
namespace {

Status refuse(std::string_view flag, std::optional<KvFormat> format, std::string_view why) {
  return unsupported(fmt::format("--{} {}{}", flag, name_of(kKvFormats, format), why),
                     std::string(flag));
}

Status check_on_gpu(std::string_view flag, std::optional<KvFormat> format) {
  if (format == KvFormat::kInt8) {
    return refuse(flag, format,
                  ": on a GPU 8 bits are --kv-cache-dtype fp8; or use auto, or --device cpu");
  }
  if (format == KvFormat::kF32) {
    return refuse(flag, format,
                  ": on a GPU keys and values have the type of the model's activations, or are "
                  "fp8: use auto, or --device cpu");
  }
  return ok_status();
}

Status check_on_cpu(std::string_view flag, std::optional<KvFormat> format) {
  if (format == KvFormat::kFp8) return refuse(flag, format, " is of GPUs: on a CPU use int8");
  if (format != KvFormat::kBF16) return ok_status();
  return refuse(flag, format, " is not supported on a CPU: use f16, int8 or f32");
}

}  // namespace

bool is_fp8(const KvFormatOptions& options) {
  return options.both == KvFormat::kFp8 || options.k == KvFormat::kFp8 ||
         options.v == KvFormat::kFp8;
}

Status check_kv_formats(const KvFormatOptions& options, bool on_gpu) {
  const auto check = on_gpu ? check_on_gpu : check_on_cpu;
  HR_RETURN_IF_ERROR(check("kv-cache-dtype", options.both));
  HR_RETURN_IF_ERROR(check("cache-type-k", options.k));
  HR_RETURN_IF_ERROR(check("cache-type-v", options.v));
  if (!on_gpu || !is_fp8(options)) return ok_status();
  const KvFormats formats = choose_kv_formats(options, DType::kF16);
  if (formats.k == formats.v) return ok_status();
  const bool keys = formats.k == KvFormat::kFp8;
  return refuse(keys ? "cache-type-k" : "cache-type-v", KvFormat::kFp8,
                ": on a GPU keys and values are kept alike: use --kv-cache-dtype fp8");
}

Status check_gpu_kv(const KvFormatOptions& options, const std::string& model, const ModelSpec& spec,
                    KvMemoryKind memory) {
  if (!is_fp8(options)) return ok_status();
  if (memory != KvMemoryKind::kPaged) {
    return unsupported(
        fmt::format("--kv-cache-dtype fp8 is for --kv-memory paged, not {}: leave one out",
                    name_of(kKvMemoryKinds, memory)),
        "kv-cache-dtype");
  }
  for (const LayerKv& kv : spec.kv) {
    if (kv.kv_heads == 0 || (!kv.v_aliases_k && kv.k_dim == kv.v_dim)) continue;
    return unsupported(
        fmt::format("{}: --kv-cache-dtype fp8: its layers keep {}, which are not "
                    "kept in 8 bits: use auto",
                    model, kv.v_aliases_k ? "latents" : "keys and values of two sizes"),
        "kv-cache-dtype");
  }
  return ok_status();
}

KvFormats choose_kv_formats(const KvFormatOptions& options, DType computed) {
  const KvFormat both = options.both.value_or(kv_format(computed));
  return {.k = options.k.value_or(both), .v = options.v.value_or(both)};
}

KvFormats choose_gpu_kv_formats(const KvFormatOptions& options, DType activations) {
  return {is_fp8(options) ? KvFormat::kFp8 : kv_format(activations)};
}

}  // namespace headrace
