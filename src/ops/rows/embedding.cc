#include "ops/rows/embedding.h"

#include <array>

namespace headrace {

void embedding_reference(OpContext&, const EmbeddingArgs&);  // embedding_cpu.cc
void embedding_packed(OpContext&, const EmbeddingArgs&);     // embedding_cpu.cc
namespace {

bool packed_on_cpu(const DeviceTraits& traits, const EmbeddingArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.packed != nullptr;
}
bool rows_on_cpu(const DeviceTraits& traits, const EmbeddingArgs& args) {
  return traits.kind == DeviceKind::kCpu && args.packed == nullptr;
}

int64_t rows_of(const EmbeddingArgs& args) {
  return args.packed != nullptr ? args.packed->n() : args.table.rows();
}
int64_t columns_of(const EmbeddingArgs& args) {
  return args.packed != nullptr ? args.packed->k() : args.table.columns();
}

constexpr std::array kEmbeddingCpuKernels = {
    Kernel<EmbeddingArgs>{"embedding/cpu/packed", packed_on_cpu, embedding_packed},
    Kernel<EmbeddingArgs>{"embedding/cpu/reference", rows_on_cpu, embedding_reference},
};

void check_args(const OpContext& context, const EmbeddingArgs& args) {
  const int64_t tokens = static_cast<int64_t>(args.tokens.size());
  CHECK(args.packed != nullptr ? args.table.data == nullptr : args.table.shape.rank() == 2);
  CHECK(is_activation(context.device, args.out.dtype));
  CHECK((args.out.shape == Shape{tokens, columns_of(args)}));
  if (args.position_table.data == nullptr) return;
  CHECK(std::ssize(args.positions) == tokens && args.position_table.dtype == DType::kF32);
  CHECK(args.position_table.columns() == args.out.columns());
}

}  // namespace

const KernelSet<EmbeddingArgs>& embedding_kernels() {
  static const KernelSet<EmbeddingArgs> set({embedding_cuda_kernels(), kEmbeddingCpuKernels});
  return set;
}

OpCost op_cost(const EmbeddingArgs& args) {
  const int64_t row = args.packed != nullptr
                          ? args.packed->packed_bytes() / rows_of(args)
                          : row_bytes(args.table.dtype, columns_of(args)).value_or(0);
  const int64_t position_row =
      args.position_table.data == nullptr ? 0 : args.out.columns() * int64_t{sizeof(float)};
  return row_op_cost(args.out.rows(), args.out.columns(),
                     args.out.rows() * (row + position_row) + bytes_of(args.out));
}

void embedding(OpContext& context, const EmbeddingArgs& args) {
  check_args(context, args);
  if (args.tokens.empty()) return;
  run_op(context, embedding_kernels(), args);
}

}  // namespace headrace
