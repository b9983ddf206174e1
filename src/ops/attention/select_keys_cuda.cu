// select_keys on CUDA: the scores of some rows at a time go to the workspace, then each of these
// rows chooses. What is launched depends on the number of rows alone, lengths are in the step's
// plan, so that a recorded step is replayed with others.
#include <algorithm>
#include <array>

#include "ops/attention/select_keys.h"
#include "ops/attention/select_keys_choice.cuh"
#include "ops/attention/select_keys_scores.cuh"

namespace headrace {
namespace {

// Thread blocks that share the keys of the rows of a launch, a multiprocessor.
constexpr int32_t kBlocksOfSm = 4;
// Rows beyond which a thread block of the tensor cores has several rows, which may read one
// sequence's keys together: what decodes has fewer, each of a sequence of its own.
constexpr int32_t kSingleRowsMax = 256;

// Of `runs` runs of rows, the thread blocks that share the keys of each.
unsigned blocks_of_run(const DeviceTraits& traits, int64_t runs, int64_t tiles) {
  const int64_t wanted = (int64_t{kBlocksOfSm} * traits.sm_count + runs - 1) / runs;
  return static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, tiles));
}

template <class T>
void score_plainly(OpContext& context, const SelectKeysArgs& args,
                   const gpu::ScoreArguments<T>& arguments) {
  const auto rows = static_cast<unsigned>(arguments.row_count);
  const dim3 blocks(
      blocks_of_run(context.device.traits(), rows, arguments.stride / gpu::kPlainScoreThreads),
      rows);
  const bool half = index_format(args.kv) == KvFormat::kF16;
  gpu::launch(context,
              half ? gpu::score_keys_plainly<__half, T> : gpu::score_keys_plainly<float, T>, blocks,
              gpu::kPlainScoreThreads, arguments);
}

template <class T>
void score_on_tensor_cores(OpContext& context, const SelectKeysArgs& args,
                           gpu::ScoreArguments<T> arguments) {
  arguments.rows_of_block = args.queries.rows() <= kSingleRowsMax ? 1 : gpu::kScoreRowsMax;
  const unsigned runs = gpu::blocks_for(arguments.row_count, arguments.rows_of_block);
  const dim3 blocks(blocks_of_run(context.device.traits(), runs, arguments.stride / kScoreTileKeys),
                    runs);
  gpu::launch(context, gpu::score_keys<T>, blocks, gpu::kScoreThreads, arguments);
}

// `score` and the choice behind it, for as many rows at a time as have room for their scores.
template <class T, class ScoreRows>
void select_rows(OpContext& context, const SelectKeysArgs& args, const ScoreRows& score) {
  const int32_t kv_length_max = args.plan->shape.kv_length_max;
  const int64_t rows = args.queries.rows(), stride = scored_stride(kv_length_max);
  const int64_t rows_max = std::min(rows, scored_rows_max(kv_length_max));
  const Workspace::Mark mark(context.workspace);
  auto* const scores = context.workspace.take_array<float>(rows_max * stride);
  const gpu::StepRows step_rows = gpu::StepRows::of(*args.plan);
  gpu::ScoreArguments<T> arguments{.queries = gpu::rows_of<T>(args.queries),
                                   .weights = gpu::rows_of<float>(args.weights),
                                   .keys = args.kv.base + args.kv.index_offset,
                                   .block_stride = args.kv.block_stride,
                                   .rows = step_rows,
                                   .row_first = 0,
                                   .row_count = 0,
                                   .rows_of_block = 1,
                                   .heads = static_cast<int32_t>(args.weights.columns()),
                                   .dim = args.kv.index_dim,
                                   .top = args.chosen.top,
                                   .scores = scores,
                                   .stride = stride};
  for (int64_t first = 0; first < rows; first += rows_max) {
    arguments.row_first = static_cast<int32_t>(first);
    arguments.row_count = static_cast<int32_t>(std::min(rows_max, rows - first));
    score(context, args, arguments);
    gpu::launch(context, gpu::choose_places, static_cast<unsigned>(arguments.row_count),
                gpu::kChoiceThreads,
                gpu::ChoiceArguments{.rows = step_rows,
                                     .row_first = arguments.row_first,
                                     .chosen = args.chosen,
                                     .scores = scores,
                                     .stride = stride});
  }
}

void run_plainly(OpContext& context, const SelectKeysArgs& args) {
  gpu::with_float_type(args.queries.dtype, [&]<class T>(gpu::ElementType<T>) {
    select_rows<T>(context, args, score_plainly<T>);
  });
}

void run_on_tensor_cores(OpContext& context, const SelectKeysArgs& args) {
  if (args.queries.dtype == DType::kF16) {
    return select_rows<__half>(context, args, score_on_tensor_cores<__half>);
  }
  select_rows<__nv_bfloat16>(context, args, score_on_tensor_cores<__nv_bfloat16>);
}

bool any(const DeviceTraits& traits, const SelectKeysArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.plan != nullptr && args.plan->shape.lists_rows;
}

bool on_tensor_cores(const DeviceTraits& traits, const SelectKeysArgs& args) {
  if (!any(traits, args)) return false;
  const KvLayerView& kv = args.kv;
  const int64_t heads = args.weights.columns();
  return traits.compute_capability >= 80 && kv.index_dim == gpu::kIndexDim && heads % 8 == 0 &&
         heads <= gpu::kIndexHeadsMax && args.queries.dtype != DType::kF32 &&
         index_format(kv) == KvFormat::kF16 && gpu::rows_aligned(args.queries) &&
         kv.index_offset % 4 == 0 && kv.block_stride % 4 == 0;
}

constexpr std::array kKernels = {
    Kernel<SelectKeysArgs>{"select_keys/cuda/d128", on_tensor_cores, run_on_tensor_cores},
    Kernel<SelectKeysArgs>{
        .name = "select_keys/cuda/any", .supports = any, .run = run_plainly, .is_fallback = true},
};

}  // namespace

KernelTable<SelectKeysArgs> select_keys_cuda_kernels() { return kKernels; }

}  // namespace headrace
