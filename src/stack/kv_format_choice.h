// What keys and values are kept as: what flags ask for, where a device has kernels for it.
#pragma once

#include <optional>
#include <string_view>

#include "base/status.h"
#include "models/model.h"
#include "stack/stack_options.h"

namespace headrace {

// kInvalidArgument or kUnsupported, naming the flag and what to write instead.
Status check_kv_formats(const KvFormatOptions& options, bool on_gpu);
// Whether a model's layers, and how they are kept, can have what is asked for on a GPU. `model`: as
// errors name it. kUnsupported.
Status check_gpu_kv(const KvFormatOptions& options, const std::string& model, const ModelSpec& spec,
                    KvMemoryKind memory);

// What keys or values are asked for as that has fewer bits than a GPU's activations, if it is.
std::optional<KvFormat> small_kv_format(const KvFormatOptions& options);

// `computed`: the type in which attention computes or, on a CPU, keeps what nobody asked for.
KvFormats choose_kv_formats(const KvFormatOptions& options, DType computed);
// On a GPU: what is asked for of fewer bits, in its layout there, or the type of the activations,
// as which all 16-bit types are taken.
KvFormats choose_gpu_kv_formats(const KvFormatOptions& options, DType activations);

// Of every format, those among them that no flag names.
constexpr std::string_view kv_format_name(KvFormat format) {
  constexpr std::string_view kNames[] = {
      "F32", "F16", "BF16", "INT8", "FP8", "INT8 of a head", "INT4", "INT4 of a head"};
  return kNames[static_cast<size_t>(format)];
}

}  // namespace headrace
