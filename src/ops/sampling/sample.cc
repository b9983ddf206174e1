#include "ops/sampling/sample.h"

#include "ops/sampling/sample_row.h"

namespace headrace {
namespace {

void check_logits(const ConstTensorView& logits, size_t rows, size_t results) {
  CHECK(logits.dtype == DType::kF32 && logits.shape.rank() == 2 && logits.columns() > 0);
  CHECK(static_cast<int64_t>(rows) == logits.rows());
  CHECK(rows == results);
}

}  // namespace

const KernelSet<SampleArgs>& sample_kernels() {
  static const KernelSet<SampleArgs> set({sample_cpu_kernels()});
  return set;
}

const KernelSet<TokenLogprobsArgs>& token_logprobs_kernels() {
  static const KernelSet<TokenLogprobsArgs> set({token_logprobs_cpu_kernels()});
  return set;
}

OpCost op_cost(const SampleArgs& args) {
  return row_op_cost(args.logits.rows(), args.logits.columns(), bytes_of(args.logits));
}

void sample(OpContext& context, const SampleArgs& args) {
  check_logits(args.logits, args.rows.size(), args.results.size());
  if (args.rows.empty()) return;
  run_op(context, sample_kernels(), args);
}

OpCost op_cost(const TokenLogprobsArgs& args) {
  return row_op_cost(args.logits.rows(), args.logits.columns(), bytes_of(args.logits));
}

void token_logprobs(OpContext& context, const TokenLogprobsArgs& args) {
  check_logits(args.logits, args.tokens.size(), args.results.size());
  if (args.tokens.empty()) return;
  run_op(context, token_logprobs_kernels(), args);
}

int64_t sample_workspace_bytes(int thread_count, int64_t vocabulary) {
  return thread_count * SampleScratch::bytes(vocabulary) + 256;
}

}  // namespace headrace
