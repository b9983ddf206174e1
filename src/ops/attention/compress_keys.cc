#include "ops/attention/compress_keys.h"

namespace headrace {

const KernelSet<KeepSourcesArgs>& keep_sources_kernels() {
  static const KernelSet<KeepSourcesArgs> set({keep_sources_cpu_kernels()});
  return set;
}
const KernelSet<CompressKeysArgs>& compress_keys_kernels() {
  static const KernelSet<CompressKeysArgs> set({compress_keys_cpu_kernels()});
  return set;
}

OpCost op_cost(const KeepSourcesArgs& args) {
  const int64_t columns = args.keys.columns() + args.cache.source_dim;
  return row_op_cost(args.keys.rows(), columns,
                     2 * args.keys.rows() * columns * static_cast<int64_t>(sizeof(float)));
}
OpCost op_cost(const CompressKeysArgs& args) {
  const int64_t dim = args.of_index ? args.keys.index_dim : args.keys.k_dim;
  const int64_t tokens = int64_t{args.keys.rate} * (args.overlaps ? 2 : 1);
  constexpr int64_t kSourceBytes = 2 * sizeof(float);  // a number and its gate
  return row_op_cost(std::ssize(args.runs), dim * tokens,
                     std::ssize(args.runs) * tokens * dim * kSourceBytes);
}

void keep_sources(OpContext& context, const KeepSourcesArgs& args) {
  const int64_t rows = args.keys.rows();
  CHECK(args.cache.kv_heads == 1 && args.cache.rate == 1 && args.cache.v_aliases_k);
  CHECK((args.keys.shape == Shape{rows, args.cache.k_dim}));
  CHECK(args.cache.source_dim == 0 ? args.sources.data == nullptr
                                   : args.sources.shape == (Shape{rows, args.cache.source_dim}));
  CHECK(std::ssize(args.slots) == rows);
  if (rows > 0) run_op(context, keep_sources_kernels(), args);
}

void compress_keys(OpContext& context, const CompressKeysArgs& args) {
  const int64_t runs = std::ssize(args.runs), pairs = args.cos.columns();
  const int32_t dim = args.of_index ? args.keys.index_dim : args.keys.k_dim;
  const int32_t series = args.overlaps ? 2 : 1;
  CHECK(args.keys.rate > 1 && args.keys.kv_heads == 1 && args.keys.v_aliases_k);
  CHECK(args.first >= 0 && args.first + 2 * series * dim <= args.sources.source_dim);
  CHECK(dim > 0 && 2 * pairs <= dim && args.cos.rows() == runs && args.sin.rows() == runs);
  for (const CompleteRun& run : args.runs) CHECK((run.last + 1) % args.keys.rate == 0);
  if (runs > 0) run_op(context, compress_keys_kernels(), args);
}

}  // namespace headrace
