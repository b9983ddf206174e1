// rope_attention's CUDA kernels against the CPU references, and against two_ops on the device: the
// cache to the bit. Runs where there is a GPU.
#include "ops/attention/rope_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/attention/plan.h"
#include "ops/cuda_fixture.h"
#include "ops/rows/row_gather.h"

namespace headrace::rope_attention_cuda_test {
namespace {

constexpr int32_t kBlock = 16;
constexpr std::byte kPoison{0xff};  // NaN in every type

struct Case {
  int32_t query, kv, dim;
  std::vector<int32_t> lengths;  // of sequences, the new token included
  DType dtype = DType::kBF16;
  bool norms = false;
  int32_t window = 0;
  int32_t chunk = 0;  // no more than the window
  float soft_cap = 0.0f;
  bool sinks = false;
  int32_t sm_count = 132;     // that the plan is made for
  int32_t shared_blocks = 0;  // at the start of all sequences, where they are full
  int32_t padding = 0;        // rows of one token, all in one page

  int64_t rows() const { return static_cast<int64_t>(lengths.size()) + padding; }
  int64_t columns() const { return int64_t{query + 2 * kv} * dim; }
  std::string name() const {
    return std::string(dtype_name(dtype)) + " q" + std::to_string(query) + " kv" +
           std::to_string(kv) + " d" + std::to_string(dim) + (norms ? " norms" : "") + " window " +
           std::to_string(window) + " chunk " + std::to_string(chunk) + " cap " +
           std::to_string(soft_cap) + (sinks ? " sinks" : "") + " for " + std::to_string(sm_count) +
           " of " + std::to_string(lengths.size()) + " from " + std::to_string(lengths.front());
  }
};

// Inputs on the host. The places of new tokens in the cache hold NaN.
class Problem {
 public:
  explicit Problem(const Case& c) : c_(c), rng_(static_cast<uint64_t>(c.dim + c.window)) {
    give_blocks();
    kv_ = alike_kv(c.dtype, KeyLayout::kRows, c.kv, c.dim);
    kv_.block_stride = 2 * kv_.v_offset + 64;  // other layers lie between
    cache_.resize(static_cast<size_t>(block_count_ * kv_.block_stride), kPoison);
    kv_.base = cache_.data();
    for (size_t i = 0; i < c.lengths.size(); ++i) write_old_tokens(i);
    qkv_ = rounded_floats(rng_, c.dtype, c.rows() * c.columns());
    const int64_t half = c.dim / 2;
    for (int64_t i = 0; i < c.rows() * half; ++i) {
      const double angle = 6.28 * rng_.uniform();
      cos_.push_back(static_cast<float>(std::cos(angle)));
      sin_.push_back(static_cast<float>(std::sin(angle)));
    }
    make_padding_alike();
    for (int64_t row = 0; row < c.rows(); ++row) {
      const std::vector<int32_t>& table = tables_[static_cast<size_t>(row)];
      slots_.push_back(int64_t{table.back()} * kBlock + (length_of(row) - 1) % kBlock);
    }
    q_norm_ = random_floats(rng_, c.dim);
    k_norm_ = random_floats(rng_, c.dim);
    sinks_ = random_floats(rng_, c.query, 2.0f);
  }

  // [rows, Hq d] by the references in f32, with queries, keys and values rounded to the type.
  std::vector<float> expected() const {
    TestDevice cpu = TestDevice::cpu(4);
    OpContext context = cpu.context();
    std::vector<float> qkv = qkv_, cos = cos_, sin = sin_;
    std::vector<std::byte> cache = cache_;
    RopeAttentionArgs args = arguments();
    args.rope.qkv = host_view(qkv, c_.rows(), c_.columns());
    args.rope.cos = host_view(cos, c_.rows(), c_.dim / 2);
    args.rope.sin = host_view(sin, c_.rows(), c_.dim / 2);
    args.rope.slots = slots_;
    args.rope.q_norm = c_.norms ? q_norm_.data() : nullptr;
    args.rope.k_norm = c_.norms ? k_norm_.data() : nullptr;
    args.rope.kv = kv_;
    args.rope.kv.base = cache.data();
    rope_kv_kernels().all().back().run(context, args.rope);
    qkv = decode(c_.dtype, encode(c_.dtype, qkv));

    std::vector<float> out(static_cast<size_t>(c_.rows() * c_.query * c_.dim));
    const std::vector<AttentionSequence> rows = sequences(nullptr);
    args.attention.q = queries_of(host_view(qkv, c_.rows(), c_.columns()));
    args.attention.kv = args.rope.kv;
    args.attention.sequences = rows;
    args.attention.sinks = c_.sinks ? sinks_.data() : nullptr;
    args.attention.out = host_view(out, c_.rows(), int64_t{c_.query} * c_.dim);
    attention_kernels().all().back().run(context, args.attention);
    return out;
  }

  RopeAttentionArgs arguments() const {
    return {.rope = {.query_heads = c_.query, .norm_eps = 1e-6f},
            .attention = {.scale = 1.0f / std::sqrt(static_cast<float>(c_.dim)),
                          .window = c_.window,
                          .chunk = c_.chunk,
                          .soft_cap = c_.soft_cap}};
  }
  ConstTensorView queries_of(const TensorView& qkv) const {
    return TensorView(qkv.data, qkv.dtype, Shape{c_.rows(), int64_t{c_.query} * c_.dim},
                      qkv.row_stride);
  }
  // Tables: their own, or one after the other at `on_device`.
  std::vector<AttentionSequence> sequences(const int32_t* on_device) const {
    std::vector<AttentionSequence> all;
    for (int64_t row = 0; row < c_.rows(); ++row) {
      const std::vector<int32_t>& table = tables_[static_cast<size_t>(row)];
      all.push_back({.row_first = static_cast<int32_t>(row),
                     .row_count = 1,
                     .kv_length = length_of(row),
                     .block_table = on_device == nullptr ? table.data() : on_device});
      if (on_device != nullptr) on_device += table.size();
    }
    return all;
  }
  std::vector<int32_t> all_tables() const {
    std::vector<int32_t> all;
    for (const auto& table : tables_) all.insert(all.end(), table.begin(), table.end());
    return all;
  }

  const Case& c() const { return c_; }
  const KvLayerView& kv() const { return kv_; }
  const std::vector<std::byte>& cache() const { return cache_; }
  const std::vector<float>& qkv() const { return qkv_; }
  const std::vector<float>& cos() const { return cos_; }
  const std::vector<float>& sin() const { return sin_; }
  const std::vector<float>& q_norm() const { return q_norm_; }
  const std::vector<float>& k_norm() const { return k_norm_; }
  const std::vector<float>& sinks() const { return sinks_; }
  const std::vector<int64_t>& slots() const { return slots_; }

 private:
  int32_t length_of(int64_t row) const {
    return row < static_cast<int64_t>(c_.lengths.size()) ? c_.lengths[static_cast<size_t>(row)] : 1;
  }
  // Blocks are scattered. Those that all sequences share are full in each.
  void give_blocks() {
    int32_t needed = 1 + c_.shared_blocks;
    for (const int32_t length : c_.lengths) needed += (length + kBlock - 1) / kBlock;
    std::vector<int32_t> free;
    for (int32_t b = 0; b < needed; ++b) free.push_back(b);
    block_count_ = needed;
    const auto take = [&] {
      const size_t pick = rng_.below(free.size());
      const int32_t block = free[pick];
      free[pick] = free.back();
      free.pop_back();
      return block;
    };
    std::vector<int32_t> shared;
    for (int32_t b = 0; b < c_.shared_blocks; ++b) shared.push_back(take());
    for (const int32_t length : c_.lengths) {
      std::vector<int32_t> table;
      for (int32_t b = 0; b < (length + kBlock - 1) / kBlock; ++b) {
        const bool full = (b + 1) * kBlock < length;
        table.push_back(full && b < c_.shared_blocks ? shared[static_cast<size_t>(b)] : take());
      }
      tables_.push_back(std::move(table));
    }
    const int32_t padding_block = take();
    for (int32_t i = 0; i < c_.padding; ++i) tables_.push_back({padding_block});
  }
  void write_old_tokens(size_t i) {
    const int32_t length = c_.lengths[i];
    const int32_t seen = c_.window > 0 ? std::max(0, length - c_.window) : 0;
    for (int32_t t = seen / kBlock * kBlock; t + 1 < length; ++t) {
      const int64_t slot =
          int64_t{tables_[i][static_cast<size_t>(t / kBlock)]} * kBlock + t % kBlock;
      for (int32_t head = 0; head < c_.kv; ++head) {
        for (int32_t d = 0; d < c_.dim; ++d) {
          store_kv(c_.dtype, random_normal(rng_), key_at(kv_, slot, head, d));
          store_kv(c_.dtype, random_normal(rng_), value_at(kv_, slot, head, d));
        }
      }
    }
    // Blocks wholly behind the window were given back.
    for (int32_t b = 0; b < seen / kBlock; ++b) tables_[i][static_cast<size_t>(b)] = 1 << 28;
  }
  // All write one place: the same bytes, so that results do not depend on who was last.
  void make_padding_alike() {
    const auto first = static_cast<int64_t>(c_.lengths.size());
    const auto repeat = [&](std::vector<float>& values, int64_t columns) {
      for (int64_t row = first + 1; row < c_.rows(); ++row) {
        std::copy_n(values.begin() + first * columns, columns, values.begin() + row * columns);
      }
    };
    repeat(qkv_, c_.columns());
    repeat(cos_, c_.dim / 2);
    repeat(sin_, c_.dim / 2);
  }

  const Case c_;
  Rng rng_;
  KvLayerView kv_;
  int32_t block_count_ = 0;
  std::vector<std::byte> cache_;
  std::vector<std::vector<int32_t>> tables_;  // [rows]
  std::vector<float> qkv_, cos_, sin_, q_norm_, k_norm_, sinks_;
  std::vector<int64_t> slots_;
};

struct Outcome {
  std::vector<float> out;        // [rows, Hq d]
  std::vector<std::byte> cache;  // all of it
  std::vector<float> qkv;
};

// How a kernel is launched.
enum class Launch {
  kStream,     // as an eager step does
  kTwice,      // the same plan again, on the same rows
  kRecording,  // behind a kernel that writes the rows, in a recording
};

class OnDevice {
 public:
  // `planned`: sequences that attend, the first of all; what is behind them is padding.
  OnDevice(TestDevice& cuda, const Problem& problem, size_t planned = SIZE_MAX)
      : cuda_(cuda),
        problem_(problem),
        planned_(planned),
        tables_(cuda, problem.all_tables()),
        slots_(cuda, problem.slots()),
        cos_(cuda, DType::kF32, problem.c().rows(), problem.c().dim / 2, 0, &problem.cos()),
        sin_(cuda, DType::kF32, problem.c().rows(), problem.c().dim / 2, 0, &problem.sin()),
        q_norm_(cuda, problem.q_norm()),
        k_norm_(cuda, problem.k_norm()),
        sinks_(cuda, problem.sinks()),
        arena_(cuda, plan()) {
    plan_.device = arena_.data();
  }

  bool supports(const Kernel<RopeAttentionArgs>& kernel) {
    const CudaMatrix qkv = rows_of(&problem_.qkv());
    return kernel.supports(cuda_.device().traits(), arguments(qkv, qkv, nullptr));
  }

  Outcome run(const Kernel<RopeAttentionArgs>& kernel, Launch launch) {
    const Case& c = problem_.c();
    const CudaMatrix source = rows_of(&problem_.qkv());
    const CudaMatrix qkv = rows_of(launch == Launch::kRecording ? nullptr : &problem_.qkv());
    const CudaMatrix out(cuda_, c.dtype, c.rows(), int64_t{c.query} * c.dim, 16, nullptr);
    const CudaArray<std::byte> cache(cuda_, problem_.cache());
    const RopeAttentionArgs args = arguments(qkv, out, cache.data());
    OpContext context = cuda_.context();
    if (launch == Launch::kRecording) {
      std::vector<int32_t> rows;
      for (int32_t row = 0; row < c.rows(); ++row) rows.push_back(row);
      const CudaArray<int32_t> all_rows(cuda_, rows);
      EXPECT_TRUE(cuda_.stream().begin_capture().ok());
      row_gather(context, {.x = source.view(), .rows = all_rows.span(), .out = qkv.view()});
      kernel.run(context, args);
      auto graph = cuda_.stream().end_capture();
      EXPECT_TRUE(graph.ok()) << graph.status().message();
      if (graph.ok()) cuda_.stream().launch(**graph);
      EXPECT_TRUE(cuda_.stream().synchronize().ok());
    } else {
      for (int i = 0; i < (launch == Launch::kTwice ? 2 : 1); ++i) kernel.run(context, args);
    }
    return {out.read(), cache.read(), qkv.read()};
  }

 private:
  CudaMatrix rows_of(const std::vector<float>* values) const {
    const Case& c = problem_.c();
    return CudaMatrix(cuda_, c.dtype, c.rows(), c.columns(), 8, values);
  }

  RopeAttentionArgs arguments(const CudaMatrix& qkv, const CudaMatrix& out,
                              std::byte* cache) const {
    const Case& c = problem_.c();
    RopeAttentionArgs args = problem_.arguments();
    args.rope.qkv = qkv.view();
    args.rope.cos = cos_.view();
    args.rope.sin = sin_.view();
    args.rope.kv = problem_.kv();
    args.rope.kv.base = cache;
    args.rope.slots = slots_.span();
    args.rope.q_norm = c.norms ? q_norm_.data() : nullptr;
    args.rope.k_norm = c.norms ? k_norm_.data() : nullptr;
    args.attention.q = problem_.queries_of(qkv.view());
    args.attention.kv = args.rope.kv;
    args.attention.sinks = c.sinks ? sinks_.data() : nullptr;
    args.attention.plan = &plan_;
    args.attention.out = out.view();
    return args;
  }

  std::vector<std::byte> plan() {
    const Case& c = problem_.c();
    const AttentionPlanShape shape{.query_heads = c.query,
                                   .kv_heads = c.kv,
                                   .head_dim = c.dim,
                                   .window = c.window,
                                   .chunk = c.chunk,
                                   .sm_count = c.sm_count,
                                   .rows_max = static_cast<int32_t>(c.rows()),
                                   .sequences_max = static_cast<int32_t>(c.rows())};
    std::vector<std::byte> arena(static_cast<size_t>(attention_plan_bytes(shape)));
    auto sequences = problem_.sequences(tables_.data());
    if (planned_ < sequences.size()) sequences.resize(planned_);
    plan_ = plan_attention(shape, sequences, arena);
    return arena;
  }

  TestDevice& cuda_;
  const Problem& problem_;
  const size_t planned_;
  const CudaArray<int32_t> tables_;
  const CudaArray<int64_t> slots_;
  const CudaMatrix cos_, sin_;
  const CudaArray<float> q_norm_, k_norm_, sinks_;
  AttentionPlan plan_;
  const CudaArray<std::byte> arena_;
};

// ||a - b|| / ||b||, NaN if any is.
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (double{a.at(i)} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return std::sqrt(difference / size);
}
// As attention's, and a few keys on the other side of a rounding.
double bound_of(DType dtype) { return dtype == DType::kF16 ? 8e-4 : 6e-3; }

bool same_floats(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

constexpr std::string_view kTwoOps = "rope_attention/two_ops";

const Kernel<RopeAttentionArgs>& kernel_two_ops() {
  const auto kernels = rope_attention_kernels().all();
  return *std::find_if(kernels.begin(), kernels.end(),
                       [](const auto& kernel) { return kernel.name == kTwoOps; });
}

void expect_agreement(TestDevice& cuda, const Case& c) {
  SCOPED_TRACE(c.name());
  const Problem problem(c);
  const std::vector<float> expected = problem.expected();
  OnDevice on_device(cuda, problem);
  const Outcome two_ops = on_device.run(kernel_two_ops(), Launch::kStream);
  EXPECT_LT(relative_error(two_ops.out, expected), bound_of(c.dtype));
  int ran = 0;
  for (const auto& kernel : rope_attention_kernels().all()) {
    if (kernel.name == kTwoOps || !on_device.supports(kernel)) continue;
    ++ran;
    SCOPED_TRACE(std::string(kernel.name));
    const Outcome first = on_device.run(kernel, Launch::kStream);
    EXPECT_LT(relative_error(first.out, expected), bound_of(c.dtype));
    EXPECT_TRUE(first.cache == two_ops.cache) << "the cache has other bits than rope_kv's";
    EXPECT_TRUE(same_floats(first.qkv, problem.qkv())) << "rows of qkv were written";
    for (const Launch launch : {Launch::kTwice, Launch::kRecording}) {
      const Outcome again = on_device.run(kernel, launch);
      EXPECT_TRUE(same_floats(again.out, first.out)) << static_cast<int>(launch);
      EXPECT_TRUE(again.cache == first.cache) << static_cast<int>(launch);
    }
  }
  EXPECT_GT(ran, 0);
}

class RopeAttentionCuda : public testing::Test {
 protected:
  void SetUp() override {
    device_ = cuda_test_device();
    if (!device_) GTEST_SKIP() << "not run: there is no GPU";
    if (device_->device().traits().compute_capability != 90) GTEST_SKIP() << "not run: not sm_90";
  }
  TestDevice& device() { return *device_; }

 private:
  std::optional<TestDevice> device_;
};

const std::vector<int32_t> kMixed = {300, 1, 17, 64, 129, 33, 600, 16};

TEST_F(RopeAttentionCuda, HeadsAndTypes) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const bool norms : {false, true}) {
      for (const int32_t dim : {64, 128, 256}) {
        for (const auto& [query, kv] : {std::pair(32, 8), {9, 3}, {8, 1}, {3, 3}, {7, 1}}) {
          expect_agreement(device(), {query, kv, dim, kMixed, dtype, norms});
        }
      }
    }
  }
}

// Lengths around the edges of pages and of the warps' turns; page 0 of a sequence is its last.
TEST_F(RopeAttentionCuda, OddLengths) {
  const std::vector<int32_t> lengths = {1,  2,  15, 16,  17,  31,  32,  33,  48,  49,
                                        63, 64, 65, 127, 128, 129, 255, 256, 257, 300};
  for (const int32_t dim : {64, 128, 256}) {
    expect_agreement(device(), {4, 1, dim, lengths});
    expect_agreement(device(), {4, 4, dim, lengths, DType::kF16, true});
  }
}

// Few multiprocessors: a thread block has many items. Many: long sequences are split, and the block
// of the last split alone has the newest key.
TEST_F(RopeAttentionCuda, SplitsAndPersistence) {
  const std::vector<int32_t> lengths = {5000, 300, 1, 3001, 777, 4096, 1025};
  for (const int32_t sm_count : {1, 7, 132, 1000}) {
    for (const int32_t dim : {64, 128, 256}) {
      Case c{8, 2, dim, lengths};
      c.sm_count = sm_count;
      expect_agreement(device(), c);
      c.window = 1500;
      c.sinks = true;
      expect_agreement(device(), c);
      c.chunk = c.window;
      expect_agreement(device(), c);
    }
  }
}

TEST_F(RopeAttentionCuda, WindowsCapsAndSinks) {
  for (const int32_t dim : {64, 128, 256}) {
    Case c{8, 2, dim, kMixed};
    for (const int32_t window : {1, 5, 100, 128, 300}) {
      c.window = window;
      expect_agreement(device(), c);
    }
    for (const int32_t chunk : {1, 40, 64, 129}) {
      c.window = c.chunk = chunk;
      expect_agreement(device(), c);
    }
    c.chunk = 0;
    c.soft_cap = 2.0f;
    c.window = 0;
    expect_agreement(device(), c);
    c.sinks = true;
    c.window = 40;
    expect_agreement(device(), c);
  }
}

// Pages that several sequences read, and padding that writes into a page of its own.
TEST_F(RopeAttentionCuda, SharedPagesAndPadding) {
  for (const int32_t dim : {64, 128, 256}) {
    Case c{8, 2, dim, {100, 100, 33, 300, 65, 64}};
    c.shared_blocks = 4;
    c.padding = 10;
    expect_agreement(device(), c);
    c.sm_count = 3;
    expect_agreement(device(), c);
  }
}

// Behind the rows of the plan they were NaN and are zero.
TEST_F(RopeAttentionCuda, RowsOfNoSequenceAreZero) {
  for (const int32_t dim : {64, 128, 256}) {
    for (const size_t planned : {size_t{1}, size_t{5}, kMixed.size() - 1}) {
      const Case c{8, 2, dim, kMixed};
      const Problem problem(c);
      std::vector<float> expected = problem.expected();
      std::fill(expected.begin() + static_cast<ptrdiff_t>(planned * 8 * static_cast<size_t>(dim)),
                expected.end(), 0.0f);
      OnDevice on_device(device(), problem, planned);
      for (const auto& kernel : rope_attention_kernels().all()) {
        if (!on_device.supports(kernel)) continue;
        SCOPED_TRACE(std::string(kernel.name) + " d" + std::to_string(dim));
        for (const Launch launch : {Launch::kStream, Launch::kRecording}) {
          const std::vector<float> out = on_device.run(kernel, launch).out;
          EXPECT_LT(relative_error(out, expected), bound_of(c.dtype));
          EXPECT_TRUE(std::all_of(
              out.begin() + static_cast<ptrdiff_t>(planned * 8 * static_cast<size_t>(dim)),
              out.end(), [](float x) { return x == 0.0f; }));
        }
      }
    }
  }
}

// Steps that others have to compute.
TEST_F(RopeAttentionCuda, WhatTwoOpsKeep) {
  for (const Case& c : {Case{32, 2, 128, kMixed}, Case{4, 1, 96, kMixed}}) {
    const Problem problem(c);
    OnDevice on_device(device(), problem);
    for (const auto& kernel : rope_attention_kernels().all()) {
      EXPECT_EQ(on_device.supports(kernel), kernel.name == kTwoOps) << kernel.name;
    }
  }
}

}  // namespace
}  // namespace headrace::rope_attention_cuda_test
