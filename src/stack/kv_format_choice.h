// What keys and values are kept as: what flags ask for, where a device has kernels for it.
#pragma once

#include "base/status.h"
#include "models/model.h"
#include "stack/stack_options.h"

namespace headrace {

// kInvalidArgument or kUnsupported, naming the flag and what to write instead.
Status check_kv_formats(const KvFormatOptions& options, bool on_gpu);

// `computed`: the type in which attention computes or, on a CPU, keeps what nobody asked for.
KvFormats choose_kv_formats(const KvFormatOptions& options, DType computed);

}  // namespace headrace
