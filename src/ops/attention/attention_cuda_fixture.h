// For the tests of attention on CUDA: problems on the host with what the CPU reference makes of
// them, the same on the device, and what agreement is.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/attention/kv_numbers.h"
#include "ops/attention/plan.h"
#include "ops/op_fixture.h"

namespace headrace::attention_cuda_fixture {
namespace {

constexpr int32_t kBlock = 16;
constexpr std::byte kPoison{0xff};  // NaN in every type

struct Heads {
  int32_t query, kv, dim;
  int32_t v_dim = dim;
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
  int32_t chunk = 0;  // no more than the window
  float soft_cap = 0.0f;
  bool sinks = false;
  bool alibi = false;
  int32_t sm_count = 0;       // that the plan is made for; 0: the device's
  int64_t stride_factor = 1;  // blocks lie that much further apart on the device
  bool split_prompts = false;
  float query_scale = 1.0f;  // the deviation of scores
  // The cache's format, else `dtype`; and what its numbers are rounded to before they are kept.
  std::optional<KvFormat> kept = {};
  std::optional<KvFormat> held = {};
  float number_scale = 1.0f;  // the deviation of keys and values

  std::string name() const {
    std::string text = std::string(dtype_name(dtype)) + " q" + std::to_string(heads.query) + " kv" +
                       std::to_string(heads.kv) + " d" + std::to_string(heads.dim) + "/" +
                       std::to_string(heads.v_dim) + " window " + std::to_string(window) +
                       " chunk " + std::to_string(chunk) + " cap " + std::to_string(soft_cap) +
                       (sinks ? " sinks" : "") + (alibi ? " alibi" : "") + kept_name() + " parts";
    for (const Part& part : parts) {
      text += " " + std::to_string(part.rows) + "/" + std::to_string(part.length);
    }
    return text;
  }
  std::string kept_name() const {
    if (!kept.has_value()) return "";
    return *kept == KvFormat::kFp8 ? " fp8" : has_4_bits(*kept) ? " int4" : " int8";
  }
};

// What a GPU keeps keys and values as, beside the activations' type.
constexpr KvFormat kColumnFormats[] = {KvFormat::kFp8, KvFormat::kInt8Head, KvFormat::kInt4Head};

// Whether fast kernels have pages of a format for heads of so many components.
inline bool has_fast_pages(KvFormat format, int32_t dim) {
  return !has_4_bits(format) || dim % kKvColumnOf4Bits == 0;
}
// Whether there are fast kernels for a case.
inline bool has_fast_kernels(const CudaCase& c) {
  const Heads& heads = c.heads;
  const int32_t dim = heads.dim, group = heads.query / heads.kv;
  if (c.dtype == DType::kF32 || !has_fast_pages(c.kept.value_or(KvFormat::kF16), dim)) {
    return false;
  }
  if (heads.v_dim != dim) return dim == 192 && heads.v_dim == 128 && !c.alibi;
  if (c.alibi) {
    const bool of_size = dim == 64 || dim == 80 || dim == 96 || dim == 128;
    return of_size && group <= 8 && c.soft_cap == 0;
  }
  return dim != 48 && (dim != 512 || group <= 8);
}

inline void store(DType dtype, float value, std::byte* at) { store_kv(dtype, value, at); }
inline float rounded(DType dtype, float value) {
  std::byte bytes[4];
  store_kv(dtype, value, bytes);
  return load_kv(dtype, bytes);
}

inline Buffer upload(TestDevice& device, const void* from, size_t bytes) {
  Buffer buffer = std::move(device.device().allocate(static_cast<int64_t>(bytes)).value());
  device.stream().copy_in(buffer.data(), static_cast<const std::byte*>(from), buffer.size());
  EXPECT_TRUE(device.stream().synchronize().ok());
  return buffer;
}

// Inputs on the host, and the result that the reference gives.
class Problem {
 public:
  explicit Problem(const CudaCase& c, uint64_t seed = 3) : c_(c), rng_(seed) {
    kv_ = alike_kv(c.kept.value_or(kv_format(c.dtype)), KeyLayout::kRows, c.heads.kv, c.heads.dim);
    kv_.v_dim = c.heads.v_dim;
    kv_.block_stride = layer_part_bytes(kv_) + 64;  // other layers lie between
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
    for (int32_t h = 0; h < c.heads.query; ++h) {
      slopes_.push_back(std::exp2(-static_cast<float>(h % 8 + 1)));
    }
  }

  // What a value of a sequence becomes; for faults.
  void set_value(size_t sequence, int32_t token, float value) {
    const int64_t slot = slot_of(sequence, token);
    for (const bool is_key : {true, false}) {
      std::vector<float> numbers;
      for (int32_t d = 0; d < dim_of(is_key); ++d) {
        numbers.push_back((is_key ? load_key : load_value)(kv_, slot, 0, d));
      }
      numbers[0] = value;
      keep(numbers, slot, 0, is_key);
    }
  }

  std::vector<float> expected() {
    TestDevice cpu = TestDevice::cpu(8);
    TestMatrix out(q_.rows(), int64_t{c_.heads.query} * c_.heads.v_dim);
    AttentionArgs args = arguments();
    args.q = q_.view();
    args.kv = kv_;
    args.sequences = sequences_;
    args.sinks = c_.sinks ? sinks_.data() : nullptr;
    args.slopes = c_.alibi ? slopes_.data() : nullptr;
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
            .chunk = c_.chunk,
            .soft_cap = c_.soft_cap};
  }
  const CudaCase& c() const { return c_; }
  const KvLayerView& kv() const { return kv_; }
  int64_t block_count() const { return block_count_; }
  std::vector<AttentionSequence> sequences() const { return sequences_; }
  const std::vector<std::vector<int32_t>>& tables() const { return tables_; }
  TestMatrix& q() { return q_; }
  const std::vector<float>& sinks() const { return sinks_; }
  const std::vector<float>& slopes() const { return slopes_; }

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
  // A key or value of a token and head.
  void keep(std::vector<float> numbers, int64_t slot, int32_t head, bool is_key) const {
    if (c_.held.has_value()) {
      KvLayerView one = alike_kv(*c_.held, KeyLayout::kRows, 1, c_.heads.dim);
      std::vector<std::byte> block(static_cast<size_t>(one.v_offset));
      one.base = block.data();
      store_key(one, 0, 0, numbers.data());
      for (int32_t d = 0; d < c_.heads.dim; ++d) {
        numbers[static_cast<size_t>(d)] = load_key(one, 0, 0, d);
      }
    }
    (is_key ? store_key : store_value)(kv_, slot, head, numbers.data());
  }
  int32_t dim_of(bool is_key) const { return is_key ? c_.heads.dim : c_.heads.v_dim; }
  std::vector<float> random_head(bool is_key) {
    std::vector<float> numbers;
    for (int32_t d = 0; d < dim_of(is_key); ++d) {
      numbers.push_back(c_.number_scale * random_normal(rng_));
    }
    return numbers;
  }
  int64_t slot_of(size_t sequence, int32_t token) const {
    return int64_t{tables_[sequence][static_cast<size_t>(token / kBlock)]} * kBlock +
           token % kBlock;
  }
  void write_sequence(size_t i) {
    const int32_t first_row = c_.parts[i].length - c_.parts[i].rows;
    int32_t seen_first = c_.window > 0 ? std::max(0, first_row + 1 - c_.window) : 0;
    if (c_.chunk > 0) seen_first = std::max(seen_first, first_row / c_.chunk * c_.chunk);
    for (int32_t t = seen_first / kBlock * kBlock; t < c_.parts[i].length; ++t) {
      for (int32_t head = 0; head < c_.heads.kv; ++head) {
        for (const bool is_key : {true, false}) {
          keep(random_head(is_key), slot_of(i, t), head, is_key);
        }
      }
    }
    // Blocks wholly behind the first row's window, or before its chunk, are not there.
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
  std::vector<float> sinks_, slopes_;
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
    q_columns_ = problem.q().columns();
    columns_ = int64_t{c.heads.query} * c.heads.v_dim;
    // q is a slice of qkv
    stride_ = q_columns_ + int64_t{c.heads.kv} * (c.heads.dim + c.heads.v_dim);
    element_ = dtype_info(c.dtype).block_bytes;
    std::vector<std::byte> q(static_cast<size_t>(rows_ * stride_ * element_), kPoison);
    for (int64_t t = 0; t < rows_; ++t) {
      for (int64_t i = 0; i < q_columns_; ++i) {
        store(c.dtype, problem.q().at(t, i), q.data() + (t * stride_ + i) * element_);
      }
    }
    q_ = upload(device, q.data(), q.size());
    sinks_ = upload(device, problem.sinks().data(), problem.sinks().size() * 4);
    slopes_ = upload(device, problem.slopes().data(), problem.slopes().size() * 4);
    poison_.resize(static_cast<size_t>(rows_ * stride_ * element_), kPoison);
    out_ = upload(device, poison_.data(), poison_.size());
    make_plan(problem.sequences(), false);
  }

  // `rows`: of the step, the first of all.
  AttentionArgs arguments(int64_t rows) {
    const CudaCase& c = problem_.c();
    AttentionArgs args = problem_.arguments();
    args.q = TensorView(q_.data(), c.dtype, Shape{rows, q_columns_}, stride_ * element_);
    args.kv = kv_;
    args.plan = &plan_;
    args.sinks = c.sinks ? reinterpret_cast<const float*>(sinks_.data()) : nullptr;
    args.slopes = c.alibi ? reinterpret_cast<const float*>(slopes_.data()) : nullptr;
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
    if (problem_.c().kept.has_value()) {
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
                                   .chunk = c.chunk,
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
  Buffer cache_, unpacked_, q_, out_, sinks_, slopes_, arena_;
  std::vector<Buffer> tables_;
  std::vector<std::byte> poison_;
  AttentionPlan plan_;
  int64_t rows_, q_columns_, columns_, stride_, element_;  // columns_: of the result
};

// ||a - b|| / ||b||, NaN if any is.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return std::sqrt(difference / size);
}

// Bounds: weights and results are rounded to the type (2^-9 and 2^-12 each), sums are f32.
inline double bound_of(DType dtype) {
  return dtype == DType::kF32 ? 2e-6 : dtype == DType::kF16 ? 6e-4 : 5e-3;
}

inline void expect_agreement_of(TestDevice& device, const CudaCase& c) {
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
    EXPECT_LT(worst, 16 * bound_of(c.dtype) * c.number_scale);
    // The plan's counters are as they were: each launch is the same, to the bit.
    for (int again = 0; again < 2; ++again) EXPECT_TRUE(on_device.run(kernel) == first);
  }
  EXPECT_GE(ran, has_fast_kernels(c) ? 2 : 1) << c.name();
}

// Whatever the cache is kept as.
inline void expect_agreement(TestDevice& device, CudaCase c) {
  expect_agreement_of(device, c);
  for (const KvFormat format : kColumnFormats) {
    c.kept = format;
    expect_agreement_of(device, c);
  }
}

// Steps of single rows are recorded as padding, and played with other lengths.
inline void expect_recorded_rows_may_get_long(TestDevice& device, const CudaCase& c) {
  Problem problem(c);
  const std::vector<float> expected = problem.expected();
  OnDevice on_device(device, problem);
  for (const auto& kernel : attention_cuda_kernels()) {
    if (!on_device.supports(kernel)) continue;
    SCOPED_TRACE(std::string(kernel.name) + " " + c.name());
    EXPECT_LT(relative_error(on_device.run(kernel), expected), bound_of(c.dtype));
    EXPECT_LT(relative_error(on_device.run_recorded(kernel), expected), bound_of(c.dtype));
  }
}

// Batch-invariant rows of two sequences: the whole prompts, chunks of the first beside the other,
// and token by token.
inline void expect_rows_have_the_same_bits(TestDevice& device, const CudaCase& c) {
  const int32_t longer = c.parts[0].rows, shorter = c.parts[1].rows;
  Problem problem(c);
  const std::vector<float> expected = problem.expected();
  OnDevice on_device(device, problem);
  std::vector<std::vector<AttentionSequence>> chunks, single;
  for (int32_t t = 0; t < longer; ++t) {
    single.push_back({{t, 1, t + 1, nullptr}});
    if (t < shorter) single.back().push_back({longer + t, 1, t + 1, nullptr});
  }
  for (int32_t first = 0, last; first < longer; first = last) {
    last = std::min(longer, first + 1 + first % 97);
    chunks.push_back({{first, last - first, last, nullptr}, {longer, shorter, shorter, nullptr}});
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

// A step of the first `there` sequences that is padded to the rows of all: those behind its last
// sequence's were NaN and are zero.
inline void expect_padding_is_zero(TestDevice& device, const CudaCase& c, size_t there) {
  Problem problem(c);
  std::vector<float> expected = problem.expected();
  const auto first =
      static_cast<ptrdiff_t>(problem.sequences()[there].row_first) * c.heads.query * c.heads.v_dim;
  expected.resize(static_cast<size_t>(first));
  OnDevice on_device(device, problem);
  for (const auto& kernel : attention_cuda_kernels()) {
    if (!on_device.supports(kernel)) continue;
    for (const bool batch_invariant : {false, true}) {
      SCOPED_TRACE(std::string(kernel.name) + " " + c.name() + " first " + std::to_string(there));
      const auto out = on_device.run_first(kernel, there, batch_invariant);
      EXPECT_LT(relative_error({out.begin(), out.begin() + first}, expected), bound_of(c.dtype));
      EXPECT_EQ(std::count(out.begin() + first, out.end(), 0.0f), std::ssize(out) - first);
    }
  }
}

// One sequence's NaN is its own: its neighbours have the same bits as without it. The case's parts
// are two that get one, and others behind them.
inline void expect_a_nan_stays_in_its_sequence(TestDevice& device, const CudaCase& c) {
  Problem clean(c), faulty(c);
  faulty.set_value(0, 20, std::nanf(""));
  faulty.set_value(1, 20, std::nanf(""));
  OnDevice clean_on(device, clean), faulty_on(device, faulty);
  const auto row = static_cast<ptrdiff_t>(c.heads.query) * c.heads.v_dim;
  const auto second = row * c.parts[0].rows, others = second + row * c.parts[1].rows;
  for (const auto& kernel : attention_cuda_kernels()) {
    if (!clean_on.supports(kernel) || !faulty_on.supports(kernel)) continue;
    SCOPED_TRACE(std::string(kernel.name) + " " + c.name());
    const std::vector<float> a = clean_on.run(kernel), b = faulty_on.run(kernel);
    EXPECT_TRUE(std::equal(a.begin() + others, a.end(), b.begin() + others));
    EXPECT_TRUE(std::isnan(*(b.begin() + second - row)) && std::isnan(*(b.begin() + second)));
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

}  // namespace
}  // namespace headrace::attention_cuda_fixture
