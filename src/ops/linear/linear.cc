#include "ops/linear/linear.h"

#include <algorithm>

#include <fmt/format.h>

#include "ops/linear/blocks.h"
#include "ops/linear/blocks_tiles.h"
#include "ops/linear/blocks_wide.h"
#include "ops/linear/float8.h"
#include "ops/linear/linear_cpu.h"

namespace headrace {

int64_t linear_cuda_workspace_bytes();  // library_cuda.cu

namespace {

bool on_cpu(const DeviceTraits& traits, const LinearArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

bool on_avx2(const DeviceTraits& traits, const LinearArgs& args) {
  return on_cpu(traits, args) && traits.cpu.avx2;
}

bool on_avx_vnni(const DeviceTraits& traits, const LinearArgs& args) {
  return on_avx2(traits, args) && traits.cpu.avx_vnni;
}

bool on_avx512(const DeviceTraits& traits, const LinearArgs& args) {
  return on_cpu(traits, args) && traits.cpu.avx512;
}

bool on_avx512_vnni(const DeviceTraits& traits, const LinearArgs& args) {
  return on_avx512(traits, args) && traits.cpu.avx512_vnni;
}

bool on_avx512_bf16(const DeviceTraits& traits, const LinearArgs& args) {
  return on_avx512_vnni(traits, args) && traits.cpu.avx512_bf16 && traits.cpu.fast_bf16_dot;
}

bool on_amx(const DeviceTraits& traits, const LinearArgs& args) {
  return on_avx512_vnni(traits, args) && traits.cpu.avx512_bf16 && traits.cpu.amx_bf16 &&
         traits.cpu.amx_int8;
}

// Block types as BF16: few rows are multiplied as integers, so that a row's bits depend on how many
// there are; not where 16-bit activations are asked for.
bool on_amx_mixed(const DeviceTraits& traits, const LinearArgs& args) {
  const bool wide = args.weight != nullptr && args.weight->compute() == LinearCompute::kFastWide;
  return on_amx(traits, args) && !traits.batch_invariant && !wide;
}

template <const LinearCpuIsa& kBlocks, const LinearFloatKernels& kFloats>
void tiled(OpContext& context, const LinearArgs& args) {
  linear_cpu_tiled(context, args, {kBlocks, kFloats});
}

constexpr Kernel<LinearArgs> kLinearCpuKernels[] = {
    {"linear/cpu/amx_bf16", on_amx_mixed, tiled<kLinearAmxBf16, kLinearAmxFloats>},
    {"linear/cpu/amx", on_amx, tiled<kLinearAvx512Vnni, kLinearAmxFloats>},
    {"linear/cpu/avx512_bf16", on_avx512_bf16, tiled<kLinearAvx512Vnni, kLinearAvx512Bf16Floats>},
    {"linear/cpu/avx512_vnni", on_avx512_vnni, tiled<kLinearAvx512Vnni, kLinearAvx512Floats>},
    {"linear/cpu/avx512", on_avx512, tiled<kLinearAvx512, kLinearAvx512Floats>},
    {"linear/cpu/avx_vnni", on_avx_vnni, tiled<kLinearAvxVnni, kLinearAvx2Floats>},
    {"linear/cpu/avx2", on_avx2, tiled<kLinearAvx2, kLinearAvx2Floats>},
    {"linear/cpu/baseline", on_cpu, tiled<kLinearBaseline, kLinearBaselineFloats>},
    {"linear/cpu/reference", on_cpu, linear_cpu_reference},
};

void check_shapes(const OpContext& context, const LinearArgs& args) {
  CHECK(args.weight != nullptr && args.weight->n() > 0);
  CHECK(is_activation(context.device, args.x.dtype) && args.x.shape.rank() == 2);
  CHECK(args.y.dtype == args.x.dtype || args.y.dtype == DType::kF32);
  CHECK(args.y.shape.rank() == 2);
  CHECK(args.x.columns() == args.weight->k());
  CHECK(args.y.columns() == args.weight->n());
  CHECK(args.x.rows() == args.y.rows());
  CHECK(args.x.row_stride % dtype_info(args.x.dtype).block_bytes == 0);
  CHECK(args.y.row_stride % dtype_info(args.y.dtype).block_bytes == 0);
}

}  // namespace

const KernelSet<LinearArgs>& linear_kernels() {
  static const KernelSet<LinearArgs> set({linear_cuda_kernels(), kLinearCpuKernels});
  return set;
}

int64_t linear_workspace_bytes(int64_t m, const LinearWeight& weight) {
  if (weight.on_cpu()) return linear_cpu_workspace_bytes(m, weight);
  const int64_t library = linear_cuda_workspace_bytes();
  if (weight.is_matrix_of(DType::kF8)) return library + float8_workspace_bytes(m, weight);
  if (weight.is_matrix()) return library;
  const bool invariant = weight.device().traits().batch_invariant;
  const int64_t arranged = arranged_bytes(m, weight);
  if (invariant) return arranged + 512;
  const int64_t wide = blocks_wide_bytes(std::min(m, kBlocksWideRowsMax), weight);
  const int64_t tiles = blocks_tiles_bytes(m, weight);
  return std::max({unpacked_bytes(weight) + library, wide, tiles, arranged}) + 512;
}

OpCost op_cost(const LinearArgs& args) {
  const int64_t m = args.x.rows(), n = args.weight->n(), k = args.weight->k();
  const DType dtype = args.weight->main_dtype();
  const int64_t sums = args.output == LinearOutput::kAccumulate ? bytes_of(args.y) : 0;
  return {.shape = fmt::format("{} x {} {}", n, k, dtype_name(dtype)),
          .rows = m,
          .bytes = args.weight->packed_bytes() + bytes_of(args.x) + bytes_of(args.y) + sums,
          .flops = 2 * m * n * k,
          .type = is_quantised(dtype)     ? "int8"
                  : dtype == DType::kF8   ? "fp8"
                  : dtype == DType::kBF16 ? "bf16"
                                          : "f32"};
}

void linear(OpContext& context, const LinearArgs& args) {
  check_shapes(context, args);
  if (args.x.rows() == 0) return;
  run_op(context, linear_kernels(), args);
}

}  // namespace headrace
