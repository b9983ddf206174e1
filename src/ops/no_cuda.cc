// The CUDA tables of a build without CUDA: empty.
#include "ops/attention/attention.h"
#include "ops/attention/rope_attention.h"
#include "ops/attention/rope_kv.h"
#include "ops/ceilings/ceiling.h"
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
#include "ops/sampling/slot_state.h"

namespace headrace {

std::span<const Kernel<ActivationArgs>> activation_cuda_kernels() { return {}; }
std::span<const Kernel<GatedActivationArgs>> gated_activation_cuda_kernels() { return {}; }
std::span<const Kernel<AttentionArgs>> attention_cuda_kernels() { return {}; }
std::span<const Kernel<DeviceSampleArgs>> device_sample_cuda_kernels() { return {}; }
std::span<const Kernel<EmbeddingArgs>> embedding_cuda_kernels() { return {}; }
std::span<const Kernel<LayerNormArgs>> layer_norm_cuda_kernels() { return {}; }
std::span<const Kernel<GatedLinearArgs>> gated_linear_cuda_kernels() { return {}; }
std::span<const Kernel<GatedLinearArgs>> gated_linear_cuda_variants() { return {}; }
std::span<const Kernel<LinearArgs>> linear_cuda_kernels() { return {}; }
std::span<const Kernel<NormLinearArgs>> norm_linear_cuda_kernels() { return {}; }
std::span<const Kernel<NormGatedLinearArgs>> norm_gated_linear_cuda_kernels() { return {}; }
std::span<const Kernel<ResidualLinearArgs>> residual_linear_cuda_kernels() { return {}; }
std::span<const Kernel<ResidualLinearArgs>> residual_linear_cuda_variants() { return {}; }
std::span<const Kernel<NormLinearArgs>> norm_linear_cuda_variants() { return {}; }
std::span<const Kernel<NormGatedLinearArgs>> norm_gated_linear_cuda_variants() { return {}; }
int64_t linear_cuda_workspace_bytes() { return 0; }
void read_all_cuda(Stream&, int32_t, std::span<const std::byte>) {
  CHECK_MSG(false, "this build has no CUDA device");
}
std::span<const Kernel<ResidualAddArgs>> residual_add_cuda_kernels() { return {}; }
std::span<const Kernel<RmsNormArgs>> rms_norm_cuda_kernels() { return {}; }
std::span<const Kernel<RopeAnglesArgs>> rope_angles_cuda_kernels() { return {}; }
std::span<const Kernel<RopeAttentionArgs>> rope_attention_cuda_kernels() { return {}; }
std::span<const Kernel<RopeAttentionArgs>> rope_attention_cuda_variants() { return {}; }
std::span<const Kernel<RopeKvArgs>> rope_kv_cuda_kernels() { return {}; }
std::span<const Kernel<RowGatherArgs>> row_gather_cuda_kernels() { return {}; }
std::span<const Kernel<SlotStateArgs>> slot_state_cuda_kernels() { return {}; }
std::span<const Kernel<SoftCapArgs>> soft_cap_cuda_kernels() { return {}; }

}  // namespace headrace
