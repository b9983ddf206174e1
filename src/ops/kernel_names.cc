#include "ops/kernel_names.h"

#include "ops/attention/attention.h"
#include "ops/attention/rope_attention.h"
#include "ops/attention/rope_kv.h"
#include "ops/linear/gated_linear.h"
#include "ops/linear/linear.h"
#include "ops/linear/norm_linear.h"
#include "ops/linear/residual_linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/embedding.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/rope_angles.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/soft_cap.h"
#include "ops/sampling/device_sample.h"
#include "ops/sampling/sample.h"
#include "ops/sampling/slot_state.h"

namespace headrace {
namespace {

template <class... Sets>
std::vector<std::string_view> names_of(const Sets&... sets) {
  std::vector<std::string_view> names;
  const auto add = [&](const auto& set) {
    for (const auto& kernel : set.all()) names.push_back(kernel.name);
  };
  (add(sets), ...);
  return names;
}

}  // namespace

std::vector<std::string_view> kernel_names() {
  return names_of(activation_kernels(), attention_kernels(), device_sample_kernels(),
                  embedding_kernels(), gated_activation_kernels(), gated_linear_kernels(),
                  layer_norm_kernels(), linear_kernels(), norm_gated_linear_kernels(),
                  norm_linear_kernels(), residual_add_kernels(), residual_linear_kernels(),
                  rms_norm_kernels(), rope_angles_kernels(), rope_attention_kernels(),
                  rope_kv_kernels(), row_gather_kernels(), sample_kernels(), slot_state_kernels(),
                  soft_cap_kernels(), token_logprobs_kernels());
}

}  // namespace headrace
