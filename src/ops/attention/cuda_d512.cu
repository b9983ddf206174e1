// Attention with heads of 512 (Gemma 4): decode's kernel (decode.cuh) with two warps a thread
// block, as a page of keys and one of values are 32 KB, and for prompts the same warps, of which a
// position is a tile of its own, or several where their heads are few: what one thread block reads
// of keys the next ones find in the L2 cache.
#include "ops/attention/decode.cuh"

namespace headrace {
namespace {

using gpu::AttentionArguments, gpu::PageNumbers;

constexpr int kDim = 512;

template <PageNumbers kPageNumbers>
struct WideShape {
  static constexpr int kDim = headrace::kDim, kValueDim = kDim;
  static constexpr bool kAlibi = false;
  static constexpr int kRows = 8;
  static constexpr PageNumbers kNumbers = kPageNumbers;
  static constexpr bool kPlain = kNumbers == PageNumbers::kPlain;
  static constexpr int kPageBytes = gpu::decode_page_bytes<kDim, kNumbers>();
  static constexpr int kWarps = 2;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocksPerSm = 1;
  static constexpr int kStages = kPlain ? 3 : 6;
  static constexpr int kStride = kDim + 4;  // floats between rows of sums: no bank conflicts
};

// A part of a prompt: some positions of a tile, for one key head. `numbers`: of those that there
// may be, so many a tile and head.
struct PromptPart {
  AttentionTileWork tile;
  int32_t head;
};
template <class T>
class PromptParts {
 public:
  // `positions`: of a part; `tile_positions`: of a tile at most.
  __device__ PromptParts(const AttentionArguments<T>& args, int32_t positions,
                         int32_t tile_positions)
      : args_(args),
        positions_(positions),
        parts_((tile_positions + positions - 1) / positions),
        count_(args.header().prefill_count * parts_ * args.kv_heads) {}

  // The first part from `number` on, every `step`; moves `number` behind it. False: there is none.
  __device__ bool take(int32_t& number, int32_t step, PromptPart& part) const {
    for (; number < count_; number += step) {
      const AttentionTileWork& tile = args_.prefill_tiles()[number / parts_ / args_.kv_heads];
      const int32_t first = number % parts_ * positions_;
      // The first of the parts that share out a tile's keys has all of them.
      if (tile.split > 0 || first >= tile.row_count) continue;
      part.tile = tile;
      part.tile.row_first += first;
      part.tile.position += first;
      part.tile.row_count = min(positions_, tile.row_count - first);
      part.tile.key_first =
          args_.first_key(part.tile.position) / gpu::kPageTokens * gpu::kPageTokens;
      part.tile.key_last = part.tile.position + part.tile.row_count;
      part.tile.split_count = 1;
      part.head = number / parts_ % args_.kv_heads;
      number += step;
      return true;
    }
    return false;
  }

 private:
  const AttentionArguments<T>& args_;
  const int32_t positions_, parts_, count_;
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    attention_prompts(const __grid_constant__ typename gpu::DecodePages<T, Shape>::Source source,
                      AttentionArguments<T> args, int32_t positions, int32_t tile_positions,
                      int32_t out_rows) {
  extern __shared__ __align__(1024) std::byte dynamic[];
  auto& shared = *reinterpret_cast<gpu::DecodeShared<Shape>*>(dynamic);
  constexpr int kBarriers = Shape::kWarps * Shape::kStages;
  for (int i = static_cast<int>(threadIdx.x); i < kBarriers; i += Shape::kThreads) {
    (&shared.arrived[0][0])[i].init(1);
    gpu::fence_barrier_init();
  }
  __syncthreads();
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const auto block = static_cast<int32_t>(blockIdx.x), blocks = static_cast<int32_t>(gridDim.x);
  gpu::clear_padding(args, out_rows, block, blocks);
  const PromptParts<T> parts(args, positions, tile_positions);
  int32_t number = block;
  PromptPart part;
  if (!parts.take(number, blocks, part)) return;
  gpu::DecodeWarp<T, Shape> warp(shared, source);
  const typename gpu::StoredRows<T, Shape>::Arguments no_arguments;
  const gpu::StoredRows<T, Shape> rows(shared, args, no_arguments);
  warp.open(part.tile, part.head);
  warp.load_queries(args, part.tile, part.head);
  for (bool more = true; more;) {
    PromptPart next{};
    more = parts.take(number, blocks, next);
    warp.attend(args, part.tile, part.head, more ? &next.tile : nullptr, next.head, rows);
    if (more) warp.load_queries(args, next.tile, next.head);
    warp.store_state();
    __syncthreads();
    gpu::finish_tile<T, Shape>(args, part.tile, part.head, shared);
    __syncthreads();
    part = next;
  }
}

template <class T, class Shape>
void launch_prompts(OpContext& context, const AttentionArgs& args,
                    const AttentionArguments<T>& arguments) {
  const AttentionPlanShape& shape = args.plan->shape;
  // Of a window the first key that a part reads is its first position's: with one position a part,
  // a row's bits do not depend on how a prompt is cut.
  const int32_t positions =
      shape.batch_invariant ? 1 : Shape::kRows / static_cast<int32_t>(arguments.group);
  const int32_t tile_positions = std::max(1, prefill_tile_rows(kDim) / arguments.group);
  gpu::check_launch(
      context.stream,
      gpu::launch_overlapped(attention_prompts<T, Shape>,
                             {.blocks = static_cast<unsigned>(shape.sm_count),
                              .threads = Shape::kThreads,
                              .shared_bytes = sizeof(gpu::DecodeShared<Shape>)},
                             gpu::stream_of(context), gpu::DecodePages<T, Shape>::source(args.kv),
                             arguments, positions, tile_positions,
                             static_cast<int32_t>(args.out.rows())));
}

template <class T>
void run(OpContext& context, const AttentionArgs& args) {
  const AttentionPlan& plan = *args.plan;
  const Workspace::Mark mark(context.workspace);
  float* const partials =
      plan.has_decode
          ? reinterpret_cast<float*>(context.workspace.take(decode_partial_bytes(plan.shape)))
          : nullptr;
  const auto arguments = gpu::attention_arguments<T>(args, partials, nullptr);
  gpu::with_page_numbers(args.kv, [&](auto numbers) {
    using Shape = WideShape<numbers.value>;
    if (plan.has_prefill) launch_prompts<T, Shape>(context, args, arguments);
    if (plan.has_decode) gpu::launch_decode<T, Shape>(context, args, arguments);
  });
}

}  // namespace

void attention_cuda_d512(OpContext& context, const AttentionArgs& args) {
  if (args.q.dtype == DType::kF16) return run<__half>(context, args);
  run<__nv_bfloat16>(context, args);
}

}  // namespace headrace
