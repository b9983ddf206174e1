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
  if (format == KvFormat::kF32) {
    return refuse(flag, format,
                  ": on a GPU keys and values have the type of the model's activations, or are "
                  "int8, fp8 or int4: use auto, or --device cpu");
  }
  return ok_status();
}

Status check_on_cpu(std::string_view flag, std::optional<KvFormat> format) {
  if (format == KvFormat::kFp8) return refuse(flag, format, " is of GPUs: on a CPU use int8");
  if (format != KvFormat::kBF16) return ok_status();
  return refuse(flag, format, " is not supported on a CPU: use f16, int8 or f32");
}

// Of fewer bits than activations have on a GPU.
bool is_small(std::optional<KvFormat> format) {
  return format == KvFormat::kFp8 || format == KvFormat::kInt8 || format == KvFormat::kInt4;
}

}  // namespace

std::optional<KvFormat> small_kv_format(const KvFormatOptions& options) {
  const KvFormats formats = choose_kv_formats(options, DType::kF16);
  for (const KvFormat format : {formats.k, formats.v}) {
    if (is_small(format)) return format;
  }
  return std::nullopt;
}

Status check_kv_formats(const KvFormatOptions& options, bool on_gpu) {
  const auto check = on_gpu ? check_on_gpu : check_on_cpu;
  HR_RETURN_IF_ERROR(check("kv-cache-dtype", options.both));
  HR_RETURN_IF_ERROR(check("cache-type-k", options.k));
  HR_RETURN_IF_ERROR(check("cache-type-v", options.v));
  if (!on_gpu || !small_kv_format(options)) return ok_status();
  const KvFormats formats = choose_kv_formats(options, DType::kF16);
  if (formats.k == formats.v) return ok_status();
  const bool keys = is_small(formats.k);
  const KvFormat small = keys ? formats.k : formats.v;
  return refuse(keys ? "cache-type-k" : "cache-type-v", small,
                fmt::format(": on a GPU keys and values are kept alike: use --kv-cache-dtype {}",
                            name_of(kKvFormats, std::optional(small))));
}

Status check_gpu_kv(const KvFormatOptions& options, const std::string& model, const ModelSpec& spec,
                    KvMemoryKind memory) {
  const std::optional<KvFormat> small = small_kv_format(options);
  if (!small) return ok_status();
  const auto name = name_of(kKvFormats, small);
  if (memory != KvMemoryKind::kPaged) {
    return unsupported(
        fmt::format("--kv-cache-dtype {} is for --kv-memory paged, not {}: leave one out", name,
                    name_of(kKvMemoryKinds, memory)),
        "kv-cache-dtype");
  }
  for (const LayerKv& kv : spec.kv) {
    if (kv.kv_heads == 0) continue;
    if (small == KvFormat::kInt4 && !kv.v_aliases_k && kv.k_dim % kKvColumnOf4Bits != 0) {
      return unsupported(fmt::format("{}: --kv-cache-dtype {}: its heads have {} components, of "
                                     "which {} at a time are kept in 4 bits: use int8",
                                     model, name, kv.k_dim, kKvColumnOf4Bits),
                         "kv-cache-dtype");
    }
    if (!kv.v_aliases_k && kv.k_dim == kv.v_dim) continue;
    return unsupported(
        fmt::format("{}: --kv-cache-dtype {}: its layers keep {}, which are not "
                    "kept in {} bits: use auto",
                    model, name, kv.v_aliases_k ? "latents" : "keys and values of two sizes",
                    small == KvFormat::kInt4 ? 4 : 8),
        "kv-cache-dtype");
  }
  return ok_status();
}

KvFormats choose_kv_formats(const KvFormatOptions& options, DType computed) {
  const KvFormat both = options.both.value_or(kv_format(computed));
  return {.k = options.k.value_or(both), .v = options.v.value_or(both)};
}

KvFormats choose_gpu_kv_formats(const KvFormatOptions& options, DType activations) {
  const std::optional<KvFormat> small = small_kv_format(options);
  if (!small) return {kv_format(activations)};
  return {small == KvFormat::kInt8   ? KvFormat::kInt8Head
          : small == KvFormat::kInt4 ? KvFormat::kInt4Head
                                     : *small};
}

}  // namespace headrace
