// Attention over latents on a GPU beside plain loops in double, and what writes the latents beside
// the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/attention/latent_kv.h"
#include "ops/attention/latent_plan.h"
#include "ops/attention/plan.h"
#include "ops/cuda_fixture.h"

namespace headrace::latent_cuda_test {
namespace {

constexpr int32_t kBlockTokens = 16;

struct LatentCase {
  DType dtype = DType::kBF16;
  int32_t heads = 16;
  int32_t k_dim = kLatentKeyDim, v_dim = kLatentValueDim;
  std::vector<std::pair<int32_t, int32_t>> sequences;  // rows, keys
  int32_t padding = 0;                                 // rows behind those of sequences
  bool batch_invariant = false;
};

// A cache full of NaN but for the tokens of sequences, whose blocks lie anywhere.
class LatentRun {
 public:
  LatentRun(TestDevice& cuda, const LatentCase& c) : cuda_(cuda), case_(c), rng_(7) {
    for (const auto& [rows, keys] : c.sequences) {
      rows_ += rows;
      blocks_ += (keys + kBlockTokens - 1) / kBlockTokens;
    }
    std::vector<int32_t> free(static_cast<size_t>(blocks_));
    for (int32_t i = 0; i < blocks_; ++i) free[static_cast<size_t>(i)] = i;
    for (size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[rng_.below(i)]);
    cache_.assign(static_cast<size_t>(blocks_) * kBlockTokens * static_cast<size_t>(c.k_dim),
                  std::nanf(""));
    q_ = rounded_floats(rng_, c.dtype, rows() * c.heads * c.k_dim, 0.3f);
    size_t next = 0;
    int32_t row = 0;
    for (const auto& [rows, keys] : c.sequences) {
      first_entries_.push_back(static_cast<int32_t>(tables_.size()));
      for (int32_t k = 0; k < keys; ++k) {
        if (k % kBlockTokens == 0) tables_.push_back(free[next++]);
        const std::vector<float> key = rounded_floats(rng_, c.dtype, c.k_dim);
        std::copy(key.begin(), key.end(), key_at(tables_.back(), k % kBlockTokens));
      }
      first_rows_.push_back(row);
      row += rows;
    }
  }

  int64_t rows() const { return rows_ + case_.padding; }

  // Every kernel that takes it, twice from one plan.
  void expect_agreement() {
    const CudaArray<int32_t> tables(cuda_, tables_);
    const CudaArray<std::byte> cache(cuda_, encode(case_.dtype, cache_));
    const CudaMatrix q(cuda_, case_.dtype, rows(), int64_t{case_.heads} * case_.k_dim, 0, &q_);
    std::vector<AttentionSequence> sequences;
    for (size_t i = 0; i < case_.sequences.size(); ++i) {
      sequences.push_back({.row_first = first_rows_[i],
                           .row_count = case_.sequences[i].first,
                           .kv_length = case_.sequences[i].second,
                           .block_table = tables.data() + first_entries_[i]});
    }
    const AttentionPlanShape shape{.query_heads = case_.heads,
                                   .kv_heads = 1,
                                   .head_dim = case_.k_dim,
                                   .block_tokens = kBlockTokens,
                                   .sm_count = cuda_.device().traits().sm_count,
                                   .rows_max = static_cast<int32_t>(rows()),
                                   .sequences_max = static_cast<int32_t>(rows()),
                                   .batch_invariant = case_.batch_invariant,
                                   .split_prompts = true,
                                   .latents = true};
    std::vector<std::byte> arena(static_cast<size_t>(attention_plan_bytes(shape)));
    AttentionPlan plan = plan_attention(shape, sequences, arena);
    EXPECT_FALSE(plan.has_decode);
    const CudaArray<std::byte> on_device(cuda_, arena);
    plan.device = on_device.data();
    KvLayerView kv{.k_format = kv_format(case_.dtype),
                   .v_format = kv_format(case_.dtype),
                   .keys = KeyLayout::kRows,
                   .v_aliases_k = true,
                   .base = cache.data(),
                   .block_tokens = kBlockTokens,
                   .kv_heads = 1,
                   .k_dim = case_.k_dim,
                   .v_dim = case_.v_dim};
    kv.block_stride = k_part_bytes(kv);
    const std::vector<float> expected = this->expected();
    int ran = 0;
    for (const auto& kernel : attention_kernels().all()) {
      const CudaMatrix out(cuda_, case_.dtype, rows(), int64_t{case_.heads} * case_.v_dim, 8,
                           nullptr);
      const AttentionArgs args{.q = q.view(),
                               .kv = kv,
                               .sequences = {},
                               .scale = kScale,
                               .plan = &plan,
                               .out = out.view()};
      if (!kernel.supports(cuda_.device().traits(), args)) continue;
      SCOPED_TRACE(std::string(kernel.name));
      for (int turn = 0; turn < 2; ++turn) {
        OpContext context = cuda_.context();
        kernel.run(context, args);
        expect_near(out.read(), expected, 4 * unit_of(case_.dtype), 2 * unit_of(case_.dtype));
      }
      ++ran;
    }
    EXPECT_EQ(ran, case_.k_dim == kLatentKeyDim && case_.dtype != DType::kF32 ? 2 : 1);
  }

 private:
  static constexpr float kScale = 0.11f;

  std::vector<float>::iterator key_at(int32_t block, int32_t token) {
    return cache_.begin() + (int64_t{block} * kBlockTokens + token) * case_.k_dim;
  }

  std::vector<float> expected() {
    std::vector<float> out(static_cast<size_t>(rows() * case_.heads * case_.v_dim), 0.0f);
    for (size_t s = 0; s < case_.sequences.size(); ++s) {
      const auto [count, keys] = case_.sequences[s];
      for (int32_t r = 0; r < count; ++r) {
        for (int32_t head = 0; head < case_.heads; ++head) {
          const int64_t at = int64_t{first_rows_[s] + r} * case_.heads + head;
          attend(s, keys - count + r + 1, &q_[static_cast<size_t>(at * case_.k_dim)],
                 &out[static_cast<size_t>(at * case_.v_dim)]);
        }
      }
    }
    return out;
  }
  void attend(size_t s, int32_t seen, const float* q, float* out) {
    std::vector<double> scores;
    double largest = -INFINITY, total = 0;
    const auto key = [&](int32_t k) {
      return key_at(tables_[static_cast<size_t>(first_entries_[s] + k / kBlockTokens)],
                    k % kBlockTokens);
    };
    for (int32_t k = 0; k < seen; ++k) {
      double sum = 0;
      for (int32_t d = 0; d < case_.k_dim; ++d) sum += double{q[d]} * key(k)[d];
      scores.push_back(sum * kScale);
      largest = std::max(largest, scores.back());
    }
    std::vector<double> sums(static_cast<size_t>(case_.v_dim));
    for (int32_t k = 0; k < seen; ++k) {
      const double weight = std::exp(scores[static_cast<size_t>(k)] - largest);
      total += weight;
      for (size_t d = 0; d < sums.size(); ++d) {
        sums[d] += weight * key(k)[static_cast<int64_t>(d)];
      }
    }
    for (size_t d = 0; d < sums.size(); ++d) out[d] = static_cast<float>(sums[d] / total);
  }

  TestDevice& cuda_;
  const LatentCase case_;
  Rng rng_;
  int32_t rows_ = 0, blocks_ = 0;
  std::vector<int32_t> tables_, first_entries_, first_rows_;
  std::vector<float> cache_, q_;
};

TEST(LatentCuda, AttentionIsThePlainLoops) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  const std::vector<LatentCase> cases = {
      {.sequences = {{1, 1}}},
      {.sequences = {{1, 40}, {1, 17}, {1, 700}}, .padding = 5},
      {.sequences = {{33, 33}, {5, 90}, {1, 64}}},
      {.heads = 20, .sequences = {{1, 33}, {3, 300}}},
      {.heads = 128, .sequences = {{1, 200}, {2, 31}}},
      {.heads = 4, .sequences = {{9, 9}, {1, 50}, {6, 75}}},
      {.sequences = {{1, 5000}}, .padding = 2},  // shared out
      {.heads = 128, .sequences = {{1, 2100}}},
      {.heads = 96, .sequences = {{1, 900}, {3, 130}, {1, 64}}, .padding = 1},
      {.heads = 5, .sequences = {{70, 300}, {1, 65}, {1, 63}, {1, 1}}},
      {.heads = 64, .sequences = {{130, 130}, {1, 4000}}},
      {.sequences = {{300, 1100}, {1, 3000}, {1, 16}, {2, 17}}},
      {.heads = 128, .sequences = {{1, 400}, {1, 900}, {5, 700}}, .batch_invariant = true},
      {.sequences = std::vector<std::pair<int32_t, int32_t>>(150, {1, 70})},
      {.sequences = {{1, 2100}}, .batch_invariant = true},
      {.dtype = DType::kF16, .sequences = {{1, 1300}, {7, 20}}},
      {.dtype = DType::kF32, .sequences = {{1, 40}, {7, 20}}},
      {.dtype = DType::kF32, .heads = 3, .k_dim = 24, .v_dim = 16, .sequences = {{5, 40}}},
      {.heads = 4, .k_dim = 40, .v_dim = 32, .sequences = {{1, 40}, {7, 20}}, .padding = 3}};
  for (const LatentCase& c : cases) {
    SCOPED_TRACE(testing::Message()
                 << dtype_name(c.dtype) << " " << c.heads << " heads of " << c.k_dim
                 << ", sequences of rows, keys " << testing::PrintToString(c.sequences));
    LatentRun(cuda, c).expect_agreement();
    if (testing::Test::HasFailure()) return;
  }
}

struct KeptSizes {
  int32_t heads, latent, rotated, query_dim;

  int32_t kept() const { return latent + rotated; }
  // A cache of 64 tokens.
  KvLayerView view(DType dtype, std::byte* base) const {
    KvLayerView made{.k_format = kv_format(dtype),
                     .v_format = kv_format(dtype),
                     .keys = KeyLayout::kRows,
                     .v_aliases_k = true,
                     .base = base,
                     .kv_heads = 1,
                     .k_dim = kept(),
                     .v_dim = latent};
    made.block_stride = k_part_bytes(made);
    return made;
  }
};

void run_kept(TestDevice& cuda, const KeptSizes& sizes, DType dtype) {
  constexpr int64_t kTokens = 37;
  const int64_t heads = sizes.heads, kept = sizes.kept(), pairs = sizes.rotated / 2;
  Rng rng(3);
  std::vector<float> kv = rounded_floats(rng, dtype, kTokens * kept);
  std::vector<float> q = rounded_floats(rng, dtype, kTokens * heads * sizes.query_dim);
  std::vector<float> cos = random_floats(rng, kTokens * pairs);
  std::vector<float> sin = random_floats(rng, kTokens * pairs);
  const std::vector<float> norm = random_floats(rng, sizes.latent);
  std::vector<int64_t> slots;
  for (int64_t t = 0; t < kTokens; ++t) slots.push_back((t * 29 + 5) % 64);
  std::vector<float> expected_cache(static_cast<size_t>(64 * kept));
  std::vector<float> expected_queries(static_cast<size_t>(kTokens * heads * kept));
  const std::vector<float> no_cache = expected_cache, no_queries = expected_queries;
  LatentKvArgs args{
      .kv = host_view(kv, kTokens, kept),
      .q = host_view(q, kTokens, heads * sizes.query_dim),
      .cos = host_view(cos, kTokens, pairs),
      .sin = host_view(sin, kTokens, pairs),
      .norm = norm.data(),
      .norm_eps = 1e-6f,
      .heads = sizes.heads,
      .cache = sizes.view(DType::kF32, reinterpret_cast<std::byte*>(expected_cache.data())),
      .slots = slots,
      .queries = host_view(expected_queries, kTokens, heads * kept)};
  TestDevice cpu = TestDevice::cpu(1);
  OpContext on_cpu = cpu.context();
  latent_kv(on_cpu, args);

  const CudaArray<std::byte> cache(cuda, encode(dtype, no_cache));
  const CudaMatrix kv_on(cuda, dtype, kTokens, kept, 8, &kv),
      q_on(cuda, dtype, kTokens, heads * sizes.query_dim, 0, &q),
      cos_on(cuda, DType::kF32, kTokens, pairs, 0, &cos),
      sin_on(cuda, DType::kF32, kTokens, pairs, 0, &sin),
      queries(cuda, dtype, kTokens, heads * kept, 0, &no_queries);
  const CudaArray<float> norm_on(cuda, norm);
  const CudaArray<int64_t> slots_on(cuda, slots);
  args.kv = kv_on.view();
  args.q = q_on.view();
  args.cos = cos_on.view();
  args.sin = sin_on.view();
  args.norm = norm_on.data();
  args.cache = sizes.view(dtype, cache.data());
  args.slots = slots_on.span();
  args.queries = queries.view();
  OpContext context = cuda.context();
  latent_kv(context, args);
  const double near = 2 * unit_of(dtype);
  expect_near(queries.read(), expected_queries, near, near);
  expect_near(decode(dtype, cache.read()), expected_cache, near, near);
}

TEST(LatentCuda, WhatIsKeptIsTheCpus) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const KeptSizes& sizes : {KeptSizes{16, 512, 64, 192}, KeptSizes{3, 16, 8, 20}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(testing::Message() << sizes.heads << " heads, " << dtype_name(dtype));
      run_kept(cuda, sizes, dtype);
    }
  }
}

}  // namespace
}  // namespace headrace::latent_cuda_test
