#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "ops/sampling/sample.h"
#include "ops/sampling/sample_row.h"

namespace headrace {
namespace {

bool block_maxima(const float* row, int64_t count, float* block_max) {
  bool nan = false;
  for (int64_t first = 0; first < count; first += kLogitBlock) {
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t i = first; i < std::min(count, first + kLogitBlock); ++i) {
      nan |= std::isnan(row[i]);
      largest = std::max(largest, row[i]);
    }
    block_max[first / kLogitBlock] = largest;
  }
  return nan;
}

void exp_weights(const float* row, int64_t count, float largest, float factor, float* weights,
                 float* block_sum) {
  for (int64_t first = 0; first < count; first += kLogitBlock) {
    double sum = 0.0;
    for (int64_t i = first; i < std::min(count, first + kLogitBlock); ++i) {
      weights[i] = static_cast<float>(std::exp(static_cast<double>((row[i] - largest) * factor)));
      sum += weights[i];
    }
    block_sum[first / kLogitBlock] = static_cast<float>(sum);
  }
}

// Calls body(scratch, i) for every i in [0, count), each thread with its own scratch.
template <class Body>
void for_each_row(OpContext& context, int64_t count, int64_t vocabulary, const Body& body) {
  ThreadPool& pool = context.device.pool();
  const Workspace::Mark mark(context.workspace);
  const int64_t bytes = SampleScratch::bytes(vocabulary);
  std::byte* memory = context.workspace.take(bytes * pool.thread_count());
  std::atomic<int64_t> next{0};
  const auto work = [&](int thread) {
    const SampleScratch scratch = SampleScratch::carve(memory + thread * bytes, vocabulary);
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(scratch, i);
  };
  if (count == 1) {
    work(0);
  } else {
    pool.run(work);
  }
}

template <const LogitMath* kMath>
void run_sample(OpContext& context, const SampleArgs& args) {
  const int64_t vocabulary = args.logits.columns();
  for_each_row(
      context, args.logits.rows(), vocabulary, [&](const SampleScratch& scratch, int64_t i) {
        const auto row = static_cast<size_t>(i);
        args.results[row] =
            sample_row(*kMath, scratch, f32_row(args.logits, i), vocabulary, args.rows[row]);
      });
}

template <const LogitMath* kMath>
void run_token_logprobs(OpContext& context, const TokenLogprobsArgs& args) {
  const int64_t vocabulary = args.logits.columns();
  for_each_row(context, args.logits.rows(), vocabulary,
               [&](const SampleScratch& scratch, int64_t i) {
                 const auto row = static_cast<size_t>(i);
                 args.results[row] = score_token(*kMath, scratch, f32_row(args.logits, i),
                                                 vocabulary, args.tokens[row], args.logprobs);
               });
}

template <class Args>
bool sample_any_cpu(const DeviceTraits& traits, const Args&) {
  return traits.kind == DeviceKind::kCpu;
}

template <class Args>
bool sample_avx512(const DeviceTraits& traits, const Args& args) {
  return sample_any_cpu(traits, args) && traits.cpu.avx512;
}
template <class Args>
bool sample_avx2(const DeviceTraits& traits, const Args& args) {
  return sample_any_cpu(traits, args) && traits.cpu.avx2;
}

}  // namespace

const LogitMath kLogitMathReference = {block_maxima, exp_weights};

namespace {

constexpr std::array kSampleKernels = {
    Kernel<SampleArgs>{"sample/cpu/avx512", sample_avx512<SampleArgs>,
                       run_sample<&kLogitMathAvx512>},
    Kernel<SampleArgs>{"sample/cpu/avx2", sample_avx2<SampleArgs>, run_sample<&kLogitMathAvx2>},
    Kernel<SampleArgs>{"sample/cpu/reference", sample_any_cpu<SampleArgs>,
                       run_sample<&kLogitMathReference>},
};

constexpr std::array kTokenLogprobsKernels = {
    Kernel<TokenLogprobsArgs>{"token_logprobs/cpu/avx512", sample_avx512<TokenLogprobsArgs>,
                              run_token_logprobs<&kLogitMathAvx512>},
    Kernel<TokenLogprobsArgs>{"token_logprobs/cpu/avx2", sample_avx2<TokenLogprobsArgs>,
                              run_token_logprobs<&kLogitMathAvx2>},
    Kernel<TokenLogprobsArgs>{"token_logprobs/cpu/reference", sample_any_cpu<TokenLogprobsArgs>,
                              run_token_logprobs<&kLogitMathReference>},
};

}  // namespace

KernelTable<SampleArgs> sample_cpu_kernels() { return kSampleKernels; }
KernelTable<TokenLogprobsArgs> token_logprobs_cpu_kernels() { return kTokenLogprobsKernels; }

}  // namespace headrace
