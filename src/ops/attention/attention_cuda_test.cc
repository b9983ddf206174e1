// Attention's CUDA kernels against the CPU reference (double sums) on the same rounded inputs. Runs
// where there is a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/attention/kv_numbers.h"
#include "ops/attention/plan.h"
#include "ops/op_fixture.h"

namespace headrace {
namespace {

constexpr int32_t kBlock = 16;
constexpr std::byte kPoison{0xff};  // NaN in every type

struct Heads {
  int32_t query, kv, dim;
};

// Rows [length - rows, length) of a sequence in one step.
struct Part {
  int32_t rows, length;
};

struct CudaCase {
  Heads heads;
  DType dtype = DType::kBF16;
  std::vector<Part> parts;
  int32_t window = 0;
  float soft_cap = 0.0f;
  bool sinks = false;
  int32_t sm_count = 0;       // that the plan is made for; 0: the device's
  int64_t stride_factor = 1;  // blocks lie that much further apart on the device
  bool split_prompts = false;
  float query_scale = 1.0f;  // the deviation of scores
  bool fp8 = false;          // the cache's format, else `dtype`
  bool fp8_values = false;   // what it holds, in either format

  std::string name() const {
    std::string text = std::string(dtype_name(dtype)) + " q" + std::to_string(heads.query) + " kv" +
                       std::to_string(heads.kv) + " d" + std::to_string(heads.dim) + " window " +
                       std::to_string(window) + " cap " + std::to_string(soft_cap) +
                       (sinks ? " sinks" : "") + (fp8 ? " fp8" : "") + " parts";
    for (const Part& part : parts) {
      text += " " + std::to_string(part.rows) + "/" + std::to_string(part.length);
    }
    return text;
  }
};

void store(DType dtype, float value, std::byte* at) { store_kv(dtype, value, at); }
float rounded(DType dtype, float value) {
  std::byte bytes[4];
  store_kv(dtype, value, bytes);
  return load_kv(dtype, bytes);
}

Buffer upload(TestDevice& device, const void* from, size_t bytes) {
  Buffer buffer = std::move(device.device().allocate(static_cast<int64_t>(bytes)).value());
  device.stream().copy_in(buffer.data(), static_cast<const std::byte*>(from), buffer.size());
  EXPECT_TRUE(device.stream().synchronize().ok());
  return buffer;
}

// Inputs on the host, and the result that the reference gives.
class Problem {
 public:
  explicit Problem(const CudaCase& c, uint64_t seed = 3) : c_(c), rng_(seed) {
    kv_ = alike_kv(c.fp8 ? KvFormat::kFp8 : kv_format(c.dtype), KeyLayout::kRows, c.heads.kv,
                   c.heads.dim);
    kv_.block_stride = 2 * kv_.v_offset + 64;  // other layers lie between
    give_blocks();
    cache_.resize(static_cast<size_t>(block_count_ * kv_.block_stride), kPoison);
    kv_.base = cache_.data();
    int32_t rows = 0;
    for (size_t i = 0; i < c.parts.size(); ++i) {
      write_sequence(i);
      sequences_.push_back({rows, c.parts[i].rows, c.parts[i].length, tables_[i].data()});
      rows += c.parts[i].rows;
    }
    const int64_t columns = int64_t{c.heads.query} * c.heads.dim;
    q_ = TestMatrix(rng_, rows, columns);
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t i = 0; i < columns; ++i) {
        q_.at(t, i) = rounded(c.dtype, c.query_scale * q_.at(t, i));
      }
    }
    sinks_ = random_floats(rng_, c.heads.query, 2.0f);
  }

  // What a value of a sequence becomes; for faults.
  void set_value(size_t sequence, int32_t token, float value) {
    const int64_t slot = slot_of(sequence, token);
    keep(value, value_at(kv_, slot, 0, 0));
    keep(value, key_at(kv_, slot, 0, 0));
  }

  std::vector<float> expected() {
    TestDevice cpu = TestDevice::cpu(8);
    TestMatrix out(q_.rows(), q_.columns());
    AttentionArgs args = arguments();
    args.q = q_.view();
    args.kv = kv_;
    args.sequences = sequences_;
    args.sinks = c_.sinks ? sinks_.data() : nullptr;
    args.out = out.view();
    OpContext context = cpu.context();
    attention_kernels().all().back().run(context, args);
    std::vector<float> dense;
    for (int64_t t = 0; t < out.rows(); ++t) {
      for (int64_t i = 0; i < out.columns(); ++i) dense.push_back(out.at(t, i));
    }
    return dense;
  }

  AttentionArgs arguments() const {
    return {.scale = 1.0f / std::sqrt(static_cast<float>(c_.heads.dim)),
            .window = c_.window,
            .soft_cap = c_.soft_cap};
  }
  const CudaCase& c() const { return c_; }
  const KvLayerView& kv() const { return kv_; }
  int64_t block_count() const { return block_count_; }
  std::vector<AttentionSequence> sequences() const { return sequences_; }
  const std::vector<std::vector<int32_t>>& tables() const { return tables_; }
  TestMatrix& q() { return q_; }
  const std::vector<float>& sinks() const { return sinks_; }

 private:
  void give_blocks() {
    for (const Part& part : c_.parts) block_count_ += (part.length + kBlock - 1) / kBlock;
    std::vector<int32_t> free;
    for (int32_t b = 0; b < block_count_; ++b) free.push_back(b);
    for (const Part& part : c_.parts) {
      tables_.emplace_back();
      for (int32_t b = 0; b < (part.length + kBlock - 1) / kBlock; ++b) {
        const size_t pick = rng_.below(free.size());
        tables_.back().push_back(free[pick]);
        free[pick] = free.back();
        free.pop_back();
      }
    }
  }
  void keep(float value, std::byte* at) const {
    const uint8_t bits = float_to_e4m3(value);
    if (c_.fp8) {
      *at = std::byte{bits};
    } else {
      store(c_.dtype, c_.fp8_values ? e4m3_to_float(bits) : value, at);
    }
  }
  int64_t slot_of(size_t sequence, int32_t token) const {
    return int64_t{tables_[sequence][static_cast<size_t>(token / kBlock)]} * kBlock +
           token % kBlock;
  }
  void write_sequence(size_t i) {
    const int32_t seen_first =
        c_.window > 0 ? std::max(0, c_.parts[i].length - c_.parts[i].rows + 1 - c_.window) : 0;
    for (int32_t t = seen_first / kBlock * kBlock; t < c_.parts[i].length; ++t) {
      for (int32_t head = 0; head < c_.heads.kv; ++head) {
        for (int32_t d = 0; d < c_.heads.dim; ++d) {
          keep(random_normal(rng_), key_at(kv_, slot_of(i, t), head, d));
          keep(random_normal(rng_), value_at(kv_, slot_of(i, t), head, d));
        }
      }
    }
    // Blocks wholly behind the first row's window were given back.
    for (int32_t b = 0; b < seen_first / kBlock; ++b) tables_[i][static_cast<size_t>(b)] = 1 << 28;
  }

  CudaCase c_;
  Rng rng_;
  KvLayerView kv_;
  int64_t block_count_ = 0;
  std::vector<std::byte> cache_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSequence> sequences_;
  TestMatrix q_{0, 0};
  std::vector<float> sinks_;
};

// A problem on the device.
class OnDevice {
 public:
  OnDevice(TestDevice& device, Problem& problem) : device_(device), problem_(problem) {
    const CudaCase& c = problem.c();
    copy_cache();
    for (const auto& table : problem.tables()) {
      tables_.push_back(upload(device, table.data(), table.size() * 4));
    }
    rows_ = problem.q().rows();
    columns_ = problem.q().columns();
    stride_ = columns_ + 2 * int64_t{c.heads.kv} * c.heads.dim;  // q is a slice of qkv
    element_ = dtype_info(c.dtype).block_bytes;
    std::vector<std::byte> q(static_cast<size_t>(rows_ * stride_ * element_), kPoison);
    for (int64_t t = 0; t < rows_; ++t) {
      for (int64_t i = 0; i < columns_; ++i) {
        store(c.dtype, problem.q().at(t, i), q.data() + (t * stride_ + i) * element_);
      }
    }
    q_ = upload(device, q.data(), q.size());
    sinks_ = upload(device, problem.sinks().data(), problem.sinks().size() * 4);
    poison_.resize(static_cast<size_t>(rows_ * stride_ * element_), kPoison);
    out_ = upload(device, poison_.data(), poison_.size());
    make_plan(problem.sequences(), false);
  }

  // `rows`: of the step, the first of all.
  AttentionArgs arguments(int64_t rows) {
    const CudaCase& c = problem_.c();
    AttentionArgs args = problem_.arguments();
    args.q = TensorView(q_.data(), c.dtype, Shape{rows, columns_}, stride_ * element_);
    args.kv = kv_;
    args.plan = &plan_;
    args.sinks = c.sinks ? reinterpret_cast<const float*>(sinks_.data()) : nullptr;
    args.out = TensorView(out_.data(), c.dtype, Shape{rows, columns_}, stride_ * element_);
    return args;
  }
  AttentionArgs arguments() { return arguments(rows_); }

  bool supports(const Kernel<AttentionArgs>& kernel) {
    return kernel.supports(device_.device().traits(), arguments());
  }

  // [rows, columns]; the output was poisoned before.
  std::vector<float> run(const Kernel<AttentionArgs>& kernel) {
    poison_out();
    OpContext context = device_.context();
    kernel.run(context, arguments());
    return read_out();
  }

  // The same with the first `count` sequences alone: what is behind them is padding.
  std::vector<float> run_first(const Kernel<AttentionArgs>& kernel, size_t count,
                               bool batch_invariant) {
    std::vector<AttentionSequence> sequences = problem_.sequences();
    sequences.resize(count);
    make_plan(sequences, batch_invariant);
    return run(kernel);
  }

  // As run(), in one launch for each list of sequences, with batch-invariant plans.
  std::vector<float> run_invariant(const Kernel<AttentionArgs>& kernel,
                                   const std::vector<std::vector<AttentionSequence>>& steps) {
    poison_out();
    for (const auto& sequences : steps) {
      make_plan(sequences, true);
      int64_t rows = 0;
      for (const AttentionSequence& sequence : sequences) {
        rows = std::max<int64_t>(rows, sequence.row_first + sequence.row_count);
      }
      OpContext context = device_.context();
      kernel.run(context, arguments(rows));
      EXPECT_TRUE(device_.stream().synchronize().ok());
    }
    return read_out();
  }

  // The same, recorded with one key a sequence, and played with all of them.
  std::vector<float> run_recorded(const Kernel<AttentionArgs>& kernel) {
    std::vector<AttentionSequence> short_ones = problem_.sequences();
    for (AttentionSequence& sequence : short_ones) sequence.kv_length = 1;
    make_plan(short_ones, false);
    OpContext context = device_.context();
    EXPECT_TRUE(device_.stream().begin_capture().ok());
    kernel.run(context, arguments());
    auto graph = device_.stream().end_capture();
    make_plan(problem_.sequences(), false);
    poison_out();
    if (graph.ok()) device_.stream().launch(**graph);
    return read_out();  // poison, where nothing was recorded
  }

 private:
  void poison_out() { device_.stream().copy_in(out_.data(), poison_.data(), out_.size()); }

  std::vector<float> read_out() {
    std::vector<std::byte> bytes(poison_.size());
    device_.stream().copy_out(bytes.data(), out_.data(), out_.size());
    const Status status = device_.stream().synchronize();
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<float> dense;
    for (int64_t i = 0; i < rows_ * stride_; ++i) {
      const std::byte* at = bytes.data() + i * element_;
      if (i % stride_ < columns_) {
        dense.push_back(load_kv(problem_.c().dtype, at));
      } else {
        EXPECT_EQ(at[0], kPoison) << "beside row " << i / stride_;
      }
    }
    return dense;
  }

  void copy_cache() {
    kv_ = problem_.kv();
    const int64_t host_stride = kv_.block_stride;
    kv_.block_stride *= problem_.c().stride_factor;
    cache_ =
        std::move(device_.device().allocate(problem_.block_count() * kv_.block_stride).value());
    kv_.base = cache_.data();
    if (problem_.c().fp8) {
      const int64_t page_bytes = unpacked_kv(kv_, DType::kF16).block_stride;
      const std::vector<std::byte> poison(static_cast<size_t>(problem_.block_count() * page_bytes),
                                          kPoison);
      unpacked_ = upload(device_, poison.data(), poison.size());
      kv_.unpacked = unpacked_.data();
    }
    for (int64_t b = 0; b < problem_.block_count(); ++b) {
      device_.stream().copy_in(cache_.data() + b * kv_.block_stride,
                               problem_.kv().base + b * host_stride, host_stride);
    }
    EXPECT_TRUE(device_.stream().synchronize().ok());
  }
  // The sequences' block tables are those of the problem's sequences with the same number.
  void make_plan(std::vector<AttentionSequence> sequences, bool batch_invariant) {
    const CudaCase& c = problem_.c();
    const int32_t sm_count = c.sm_count > 0 ? c.sm_count : device_.device().traits().sm_count;
    for (size_t i = 0; i < sequences.size(); ++i) {
      sequences[i].block_table = reinterpret_cast<const int32_t*>(tables_[i].data());
    }
    const AttentionPlanShape shape{.query_heads = c.heads.query,
                                   .kv_heads = c.heads.kv,
                                   .head_dim = c.heads.dim,
                                   .window = c.window,
                                   .sm_count = sm_count,
                                   .rows_max = static_cast<int32_t>(rows_),
                                   .sequences_max = static_cast<int32_t>(rows_),
                                   .batch_invariant = batch_invariant,
                                   .split_prompts = c.split_prompts};
    std::vector<std::byte> arena(static_cast<size_t>(attention_plan_bytes(shape)));
    plan_ = plan_attention(shape, sequences, arena);
    if (arena_.size() < plan_.bytes) {
      arena_ = std::move(device_.device().allocate(plan_.bytes).value());
    }
    device_.stream().copy_in(arena_.data(), arena.data(), plan_.bytes);
    EXPECT_TRUE(device_.stream().synchronize().ok());
    plan_.device = arena_.data();
  }

  TestDevice& device_;
  Problem& problem_;
  KvLayerView kv_;
  Buffer cache_, unpacked_, q_, out_, sinks_, arena_;
  std::vector<Buffer> tables_;
  std::vector<std::byte> poison_;
  AttentionPlan plan_;
  int64_t rows_, columns_, stride_, element_;
};

// ||a - b|| / ||b||, NaN if any is.
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return std::sqrt(difference / size);
}

// Bounds: weights and results are rounded to the type (2^-9 and 2^-12 each), sums are f32.
double bound_of(DType dtype) {
  return dtype == DType::kF32 ? 2e-6 : dtype == DType::kF16 ? 6e-4 : 5e-3;
}

void expect_agreement_of(TestDevice& device, const CudaCase& c) {
  Problem problem(c);
  const std::vector<float> expected = problem.expected();
  OnDevice on_device(device, problem);
  int ran = 0;
  for (const auto& kernel : attention_cuda_kernels()) {
    if (!on_device.supports(kernel)) continue;
    ++ran;
    SCOPED_TRACE(std::string(kernel.name) + " " + c.name());
    const std::vector<float> first = on_device.run(kernel);
    EXPECT_LT(relative_error(first, expected), bound_of(c.dtype));
    double worst = 0;
    for (size_t i = 0; i < first.size(); ++i) {
      worst = std::max(worst, std::abs(double{first[i]} - expected[i]));
    }
    EXPECT_LT(worst, 16 * bound_of(c.dtype));
    // The plan's counters are as they were: each launch is the same, to the bit.
    for (int again = 0; again < 2; ++again) EXPECT_TRUE(on_device.run(kernel) == first);
  }
  EXPECT_GE(ran, c.dtype != DType::kF32 && c.heads.dim != 48 ? 2 : 1) << c.name();
}

// Whatever the cache is kept as.
void expect_agreement(TestDevice& device, CudaCase c) {
  for (const bool fp8 : {false, true}) {
    c.fp8 = fp8;
    expect_agreement_of(device, c);
  }
}

class AttentionCuda : public testing::Test {
 protected:
  void SetUp() override {
    auto created = create_cuda_device(0);
    if (!created.ok()) GTEST_SKIP() << "not run: " << created.status().message();
    device_ = std::make_unique<TestDevice>(std::move(*created), 256 << 20);
  }
  TestDevice& device() { return *device_; }

 private:
  std::unique_ptr<TestDevice> device_;
};

// Prompts, a chunk in the middle of another, few rows, decode rows.
const std::vector<Part> kMixed = {{37, 37}, {150, 451}, {1, 1},     {1, 530}, {3, 200},
                                  {1, 16},  {1, 17},    {260, 260}, {9, 9},   {1, 2100}};

TEST_F(AttentionCuda, EveryHeadSizeAndGroup) {
  for (const int32_t dim : {64, 80, 96, 128, 256, 48}) {
    for (const Heads& heads : {Heads{4, 4, dim},
                               {9, 3, dim},
                               {8, 2, dim},
                               {14, 2, dim},
                               {8, 1, dim},
                               {12, 1, dim},
                               {16, 1, dim},
                               {20, 1, dim}}) {
      expect_agreement(device(), {.heads = heads, .parts = kMixed});
    }
  }
}

TEST_F(AttentionCuda, EveryType) {
  for (const int32_t dim : {64, 128, 256}) {
    for (const DType dtype : {DType::kF16, DType::kF32}) {
      expect_agreement(device(), {.heads = {8, 2, dim}, .dtype = dtype, .parts = kMixed});
    }
  }
}

TEST_F(AttentionCuda, WindowsCapsAndSinks) {
  for (const int32_t dim : {64, 128, 256}) {
    for (const int32_t window : {1, 5, 100, 128, 300}) {
      expect_agreement(device(), {.heads = {8, 2, dim}, .parts = kMixed, .window = window});
    }
    expect_agreement(device(), {.heads = {8, 2, dim}, .parts = kMixed, .soft_cap = 3.0f});
    expect_agreement(device(), {.heads = {8, 2, dim}, .parts = kMixed, .sinks = true});
    expect_agreement(
        device(),
        {.heads = {8, 2, dim}, .parts = kMixed, .window = 40, .soft_cap = 2.0f, .sinks = true});
  }
}

// Lengths around the edges of pages, steps and tiles.
TEST_F(AttentionCuda, OddLengths) {
  std::vector<Part> decode, prefill;
  for (const int32_t length :
       {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257}) {
    decode.push_back({1, length});
    prefill.push_back({length, length});
  }
  for (const int32_t dim : {64, 128, 256}) {
    expect_agreement(device(), {.heads = {4, 1, dim}, .parts = decode});
    expect_agreement(device(), {.heads = {4, 1, dim}, .parts = prefill});
    expect_agreement(device(), {.heads = {3, 3, dim}, .parts = prefill});
  }
}

// Few multiprocessors: a thread block has many items. Many: every sequence is split.
TEST_F(AttentionCuda, SplitsAndPersistence) {
  const std::vector<Part> parts = {{1, 5000}, {1, 300}, {1, 1}, {2, 3001}, {4, 777}, {1, 4096}};
  for (const int32_t sm_count : {1, 7, 132, 1000}) {
    for (const int32_t dim : {64, 128, 256}) {
      expect_agreement(device(), {.heads = {8, 2, dim}, .parts = parts, .sm_count = sm_count});
      expect_agreement(device(), {.heads = {16, 1, dim},
                                  .parts = parts,
                                  .window = 1500,
                                  .sinks = true,
                                  .sm_count = sm_count});
    }
  }
}

// Single rows, of which a thread block has one, two, three or many items.
TEST_F(AttentionCuda, ItemsOfAThreadBlock) {
  std::vector<Part> parts;
  for (int32_t i = 0; i < 40; ++i) parts.push_back({1, 100 + i * 37 % 300});
  for (const int32_t sm_count : {1, 3, 14, 20, 21, 40, 100}) {
    for (const int32_t dim : {64, 128}) {
      expect_agreement(device(), {.heads = {8, 2, dim}, .parts = parts, .sm_count = sm_count});
    }
  }
  parts.push_back({1, 3000});
  expect_agreement(device(), {.heads = {8, 2, 128}, .parts = parts, .sm_count = 20});
}

// The largest score rises by less and by more than what the weights' origin follows.
TEST_F(AttentionCuda, ScoresFarApart) {
  for (const int32_t dim : {64, 80, 128, 256}) {
    for (const float scale : {3.0f, 10.0f, 30.0f}) {
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        expect_agreement(device(), {.heads = {8, 2, dim},
                                    .dtype = dtype,
                                    .parts = {{1, 900}, {1, 40}, {3, 500}, {1, 2100}},
                                    .query_scale = scale});
      }
      expect_agreement(device(), {.heads = {16, 1, dim},
                                  .parts = {{1, 900}, {1, 40}},
                                  .sinks = true,
                                  .query_scale = scale});
    }
  }
  expect_agreement(device(), {.heads = {8, 2, 128},
                              .parts = {{1, 900}, {1, 40}, {1, 333}, {1, 16}, {1, 2100}},
                              .query_scale = 10.0f});
}

// Prompts' tiles shared out by keys: a chunk behind a long context, also beside decode rows.
TEST_F(AttentionCuda, SplitPrompts) {
  const std::vector<Part> chunk = {{44, 3000}}, two = {{130, 2200}, {70, 900}},
                          mixed = {{40, 4100}, {1, 700}, {2, 3001}};
  for (const int32_t dim : {64, 80, 96, 128, 256}) {
    for (const auto& parts : {chunk, two, mixed}) {
      expect_agreement(device(), {.heads = {8, 2, dim}, .parts = parts, .split_prompts = true});
      expect_agreement(device(), {.heads = {7, 1, dim},
                                  .parts = parts,
                                  .window = 1500,
                                  .sinks = true,
                                  .sm_count = 40,
                                  .split_prompts = true});
    }
    expect_agreement(device(), {.heads = {9, 3, dim},
                                .dtype = DType::kF16,
                                .parts = chunk,
                                .soft_cap = 3.0f,
                                .sm_count = 1000,
                                .split_prompts = true});
  }
}

// Steps of single rows are recorded as padding, and played with other lengths.
TEST_F(AttentionCuda, RecordedSingleRowsMayGetLong) {
  const std::vector<Part> parts = {{1, 30}, {1, 700}, {1, 2100}, {1, 1}};
  for (const int32_t dim : {64, 80, 96, 128, 256}) {
    for (const Heads& heads : {Heads{8, 2, dim}, {16, 1, dim}, {20, 1, dim}}) {
      for (const bool fp8 : {false, true}) {
        const CudaCase c{.heads = heads, .parts = parts, .split_prompts = true, .fp8 = fp8};
        Problem problem(c);
        const std::vector<float> expected = problem.expected();
        OnDevice on_device(device(), problem);
        for (const auto& kernel : attention_cuda_kernels()) {
          if (!on_device.supports(kernel)) continue;
          SCOPED_TRACE(std::string(kernel.name) + " " + c.name());
          EXPECT_LT(relative_error(on_device.run(kernel), expected), bound_of(c.dtype));
          EXPECT_LT(relative_error(on_device.run_recorded(kernel), expected), bound_of(c.dtype));
        }
      }
    }
  }
}

TEST_F(AttentionCuda, LongPrompt) {
  expect_agreement(device(), {.heads = {4, 1, 128}, .parts = {{2500, 2500}, {600, 2100}}});
  expect_agreement(device(), {.heads = {2, 1, 64}, .parts = {{2500, 2500}}, .window = 777});
  expect_agreement(device(), {.heads = {2, 1, 256}, .parts = {{2500, 2500}}, .soft_cap = 30.0f});
}

TEST_F(AttentionCuda, BlocksBeyondTwoToThe31Elements) {
  // 8320 bytes a block x 4000: 300 blocks lie over 10 GB.
  const CudaCase c{
      .heads = {4, 2, 64}, .parts = {{1, 1500}, {200, 1500}, {3, 1700}}, .stride_factor = 4000};
  Problem problem(c);
  ASSERT_GT(problem.block_count() * problem.kv().block_stride * c.stride_factor / 2,
            int64_t{1} << 31);
  expect_agreement(device(), c);
}

// The whole prompt, chunks of it beside other sequences, and token by token.
TEST_F(AttentionCuda, BatchInvariantRowsHaveTheSameBits) {
  for (const int32_t dim : {64, 96, 128, 256}) {
    for (const int32_t window : {0, 70, 200}) {
      const CudaCase c{.heads = {6, 2, dim},
                       .parts = {{330, 330}, {150, 150}},
                       .window = window,
                       .fp8 = window > 0};
      Problem problem(c);
      const std::vector<float> expected = problem.expected();
      OnDevice on_device(device(), problem);
      std::vector<std::vector<AttentionSequence>> chunks, single;
      for (int32_t t = 0; t < 330; ++t) {
        single.push_back({{t, 1, t + 1, nullptr}});
        if (t < 150) single.back().push_back({330 + t, 1, t + 1, nullptr});
      }
      for (int32_t first = 0, last; first < 330; first = last) {
        last = std::min(330, first + 1 + first % 97);
        chunks.push_back({{first, last - first, last, nullptr}, {330, 150, 150, nullptr}});
      }
      for (const auto& kernel : attention_cuda_kernels()) {
        if (!on_device.supports(kernel)) continue;
        SCOPED_TRACE(std::string(kernel.name) + " " + c.name());
        const auto whole = on_device.run_invariant(kernel, {problem.sequences()});
        EXPECT_LT(relative_error(whole, expected), bound_of(c.dtype));
        EXPECT_TRUE(on_device.run_invariant(kernel, chunks) == whole);
        EXPECT_TRUE(on_device.run_invariant(kernel, single) == whole);
      }
    }
  }
}

// What is kept in 8-bit floats are numbers of 16 bits too: where those are kept, prompts have the
// same bits, and single rows in prefill tiles; decode tiles, which multiply in F16, are near.
TEST_F(AttentionCuda, Fp8HasTheBitsOfWhatItStandsFor) {
  for (const int32_t dim : {64, 80, 96, 128, 256}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      std::vector<std::vector<float>> results[2];
      for (const bool fp8 : {false, true}) {
        CudaCase c{.heads = {6, 2, dim}, .dtype = dtype, .parts = {{330, 330}, {1, 700}, {9, 150}}};
        c.window = dim == 96 ? 200 : 0;
        c.fp8_values = true;
        c.fp8 = fp8;
        Problem problem(c);
        OnDevice on_device(device(), problem);
        for (const auto& kernel : attention_cuda_kernels()) {
          if (!on_device.supports(kernel) || kernel.is_fallback) continue;
          results[fp8 ? 1 : 0].push_back(on_device.run_invariant(kernel, {problem.sequences()}));
          results[fp8 ? 1 : 0].push_back(on_device.run(kernel));
        }
      }
      ASSERT_EQ(results[0].size(), 2u);
      ASSERT_EQ(results[1].size(), 2u);
      EXPECT_TRUE(results[0][0] == results[1][0]) << dim;
      EXPECT_LT(relative_error(results[1][1], results[0][1]), bound_of(dtype)) << dim;
    }
  }
}

// A step that is padded to more rows: those behind its last sequence's were NaN and are zero.
TEST_F(AttentionCuda, RowsOfPaddingAreZero) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const int32_t dim : {48, 64, 80, 96, 128, 256}) {
      for (const size_t there : {1, 3, 5}) {
        const CudaCase c{
            .heads = {6, 2, dim},
            .dtype = dtype,
            .parts = {{1, 700}, {1, 33}, {1, 2100}, {40, 200}, {1, 1}, {1, 64}, {9, 9}},
            .fp8 = there == 3};
        Problem problem(c);
        std::vector<float> expected = problem.expected();
        const auto first = static_cast<size_t>(problem.sequences()[there].row_first) * 6 *
                           static_cast<size_t>(dim);
        expected.resize(first);
        OnDevice on_device(device(), problem);
        for (const auto& kernel : attention_cuda_kernels()) {
          if (!on_device.supports(kernel)) continue;
          for (const bool batch_invariant : {false, true}) {
            SCOPED_TRACE(std::string(kernel.name) + " " + c.name() + " first " +
                         std::to_string(there));
            const auto out = on_device.run_first(kernel, there, batch_invariant);
            EXPECT_LT(relative_error({out.begin(), out.begin() + static_cast<ptrdiff_t>(first)},
                                     expected),
                      bound_of(dtype));
            EXPECT_EQ(std::count(out.begin() + static_cast<ptrdiff_t>(first), out.end(), 0.0f),
                      static_cast<ptrdiff_t>(out.size() - first));
          }
        }
      }
    }
  }
}

// One sequence's NaN is its own: its neighbours have the same bits as without it.
TEST_F(AttentionCuda, ANanStaysInItsSequence) {
  for (const bool fp8 : {false, true}) {
    const CudaCase c{
        .heads = {8, 2, 128}, .parts = {{40, 40}, {1, 700}, {150, 150}, {1, 700}}, .fp8 = fp8};
    Problem clean(c), faulty(c);
    faulty.set_value(0, 20, std::nanf(""));
    faulty.set_value(1, 20, std::nanf(""));
    OnDevice clean_on(device(), clean), faulty_on(device(), faulty);
    for (const auto& kernel : attention_cuda_kernels()) {
      if (!clean_on.supports(kernel) || !faulty_on.supports(kernel)) continue;
      const std::vector<float> a = clean_on.run(kernel), b = faulty_on.run(kernel);
      const size_t row = 8 * 128;
      EXPECT_TRUE(std::equal(a.begin() + 41 * row, a.end(), b.begin() + 41 * row)) << kernel.name;
      EXPECT_TRUE(std::isnan(b[39 * row]) && std::isnan(b[40 * row])) << kernel.name;
    }
  }
}

}  // namespace
}  // namespace headrace
