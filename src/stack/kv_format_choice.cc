#include "stack/kv_format_choice.h"

#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace headrace {
namespace {

Status check_kv_format(std::string_view flag, std::optional<KvFormat> format, bool on_gpu) {
  if (!format) return ok_status();
  const std::string_view name = name_of(kKvFormats, format);
  if (on_gpu && (*format == KvFormat::kInt8 || *format == KvFormat::kF32)) {
    return unsupported(
        fmt::format("--{} {}: on a GPU keys and values have the 16-bit type of the model's "
                    "activations: use auto, or --device cpu",
                    flag, name),
        std::string(flag));
  }
  if (on_gpu || *format != KvFormat::kBF16) return ok_status();
  return unsupported(
      fmt::format("--{} {} is not supported on a CPU: use f16, int8 or f32", flag, name),
      std::string(flag));
}

}  // namespace

Status check_kv_formats(const KvFormatOptions& options, bool on_gpu) {
  HR_RETURN_IF_ERROR(check_kv_format("kv-cache-dtype", options.both, on_gpu));
  HR_RETURN_IF_ERROR(check_kv_format("cache-type-k", options.k, on_gpu));
  return check_kv_format("cache-type-v", options.v, on_gpu);
}

KvFormats choose_kv_formats(const KvFormatOptions& options, DType computed) {
  const KvFormat both = options.both.value_or(kv_format(computed));
  return {.k = options.k.value_or(both), .v = options.v.value_or(both)};
}

}  // namespace headrace
