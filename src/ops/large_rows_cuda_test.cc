// The CUDA kernels of the ops that go over rows, and of linear and sampling, on matrices of more
// than 2^31 elements: rows repeat with a short period, so what comes of the last rows must have the
// bits of what comes of the first, which the other tests hold against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "ops/attention/rope_kv.h"
#include "ops/cuda_fixture.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/embedding.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/soft_cap.h"
#include "ops/sampling/device_sample.h"

namespace headrace::large_rows_cuda_test {
namespace {

constexpr int64_t kElements = (int64_t{1} << 31) + (int64_t{1} << 27);
constexpr int64_t kPeriod = 8;  // rows

// Rows of a large matrix on the device: `period` rows of values again and again, or NaN.
class LargeMatrix {
 public:
  LargeMatrix(TestDevice& device, DType dtype, int64_t columns, const std::vector<float>* values)
      : LargeMatrix(device, dtype, kElements / columns / kPeriod * kPeriod, columns, values) {}
  LargeMatrix(TestDevice& device, DType dtype, int64_t rows, int64_t columns,
              const std::vector<float>* values)
      : device_(device), dtype_(dtype), rows_(rows), columns_(columns) {
    const int64_t bytes = rows * row_bytes();
    memory_ = std::move(device.device().allocate(bytes).value());
    const std::vector<float> poison(static_cast<size_t>(kPeriod * columns), std::nanf(""));
    const std::vector<std::byte> start = encode(dtype, values != nullptr ? *values : poison);
    auto filled = std::min(static_cast<int64_t>(start.size()), bytes);
    device.stream().copy_in(memory_.data(), start.data(), filled);
    for (; filled < bytes; filled *= 2) {
      device.stream().copy(memory_.data() + filled, memory_.data(),
                           std::min(filled, bytes - filled));
    }
    EXPECT_TRUE(device.stream().synchronize().ok());
  }

  TensorView view() const { return {memory_.data(), dtype_, Shape{rows_, columns_}}; }
  int64_t rows() const { return rows_; }
  std::vector<std::byte> read(int64_t first, int64_t count) const {
    std::vector<std::byte> bytes(static_cast<size_t>(count * row_bytes()));
    device_.stream().copy_out(bytes.data(), memory_.data() + first * row_bytes(),
                              count * row_bytes());
    const Status status = device_.stream().synchronize();
    EXPECT_TRUE(status.ok()) << status.message();
    return bytes;
  }
  // The rows around element 2^31 and the last ones have the bits of the first, which are numbers.
  void expect_periodic() const {
    const std::vector<std::byte> first = read(0, kPeriod);
    for (const float value : decode(dtype_, first)) ASSERT_FALSE(std::isnan(value));
    const int64_t middle = (int64_t{1} << 31) / columns_ / kPeriod * kPeriod;
    for (const int64_t at : {middle - kPeriod, middle, middle + kPeriod, rows_ - kPeriod}) {
      if (at < 0 || at + kPeriod > rows_) continue;
      EXPECT_EQ(read(at, kPeriod), first) << "rows from " << at << " of " << rows_;
    }
  }

 private:
  int64_t row_bytes() const { return columns_ * dtype_info(dtype_).block_bytes; }

  TestDevice& device_;
  DType dtype_;
  int64_t rows_, columns_;
  Buffer memory_;
};

class LargeRowsCuda : public testing::Test {
 protected:
  void SetUp() override {
    device_ = cuda_test_device();
    if (!device_) GTEST_SKIP() << "not run: there is no GPU";
    constexpr int64_t kNeeded = int64_t{24} << 30;
    if (device_->device().free_bytes() < kNeeded) GTEST_SKIP() << "not run: needs 24 GiB";
  }
  TestDevice& device() { return *device_; }

  std::vector<float> values(DType dtype, int64_t columns) {
    return rounded_floats(rng_, dtype, kPeriod * columns);
  }

  // Every kernel that supports the case, on an output of its own: make(out view) gives arguments.
  template <class Args, class Make>
  void expect_all(KernelSet<Args> kernels, DType dtype, int64_t columns, const Make& make) {
    for (const auto& kernel : kernels.all()) {
      const LargeMatrix out(device(), dtype, columns, nullptr);
      const Args args = make(out.view());
      if (!kernel.supports(device().device().traits(), args)) continue;
      SCOPED_TRACE(std::string(kernel.name));
      OpContext context = device().context();
      kernel.run(context, args);
      out.expect_periodic();
    }
  }

  std::optional<TestDevice> device_;
  Rng rng_{11};
};

TEST_F(LargeRowsCuda, Norms) {
  constexpr int64_t kColumns = 4096;
  const std::vector<float> start = values(DType::kBF16, kColumns);
  const LargeMatrix x(device(), DType::kBF16, kColumns, &start);
  const CudaArray<float> weight(device(), random_floats(rng_, kColumns));
  expect_all(rms_norm_kernels(), DType::kBF16, kColumns, [&](TensorView out) {
    return RmsNormArgs{
        .x = x.view(), .residual = {}, .weight = weight.data(), .eps = 1e-5f, .out = out};
  });
  expect_all(layer_norm_kernels(), DType::kBF16, kColumns, [&](TensorView out) {
    return LayerNormArgs{.x = x.view(),
                         .residual = {},
                         .weight = weight.data(),
                         .bias = weight.data(),
                         .eps = 1e-5f,
                         .out = out};
  });
}

TEST_F(LargeRowsCuda, Activations) {
  constexpr int64_t kColumns = 14336;
  const std::vector<float> start = values(DType::kBF16, 2 * kColumns);
  const LargeMatrix gate_up(device(), DType::kBF16, kElements / kColumns / kPeriod * kPeriod,
                            2 * kColumns, &start);
  expect_all(gated_activation_kernels(), DType::kBF16, kColumns, [&](TensorView out) {
    return GatedActivationArgs{gate_up.view(), Activation::kSilu, out};
  });
  const std::vector<float> plain = values(DType::kBF16, kColumns);
  const LargeMatrix x(device(), DType::kBF16, kColumns, &plain);
  expect_all(activation_kernels(), DType::kBF16, kColumns, [&](TensorView out) {
    return ActivationArgs{x.view(), Activation::kGeluTanh, out};
  });
}

TEST_F(LargeRowsCuda, ResidualAddAndSoftCap) {
  constexpr int64_t kColumns = 4096;
  const std::vector<float> start = values(DType::kBF16, kColumns);
  const LargeMatrix added(device(), DType::kBF16, kColumns, &start);
  for (const auto& kernel : residual_add_kernels().all()) {
    const LargeMatrix x(device(), DType::kBF16, kColumns, &start);
    const ResidualAddArgs args{x.view(), added.view(), 0.5f};
    if (!kernel.supports(device().device().traits(), args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    OpContext context = device().context();
    kernel.run(context, args);
    x.expect_periodic();
    EXPECT_NE(x.read(0, 1), added.read(0, 1));
  }
  constexpr int64_t kVocabulary = 128256;
  const std::vector<float> logits = values(DType::kF32, kVocabulary);
  for (const auto& kernel : soft_cap_kernels().all()) {
    const LargeMatrix x(device(), DType::kF32, kVocabulary, &logits);
    const SoftCapArgs args{x.view(), 0.5f};
    if (!kernel.supports(device().device().traits(), args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    OpContext context = device().context();
    kernel.run(context, args);
    x.expect_periodic();
    for (const float value : decode(DType::kF32, x.read(x.rows() - 1, 1))) {
      ASSERT_LE(std::abs(value), 0.5f);
    }
  }
}

// Rows of a large table, by tokens and by row numbers.
TEST_F(LargeRowsCuda, EmbeddingAndRowGather) {
  constexpr int64_t kColumns = 8192;
  const std::vector<float> start = values(DType::kBF16, kColumns);
  const LargeMatrix table(device(), DType::kBF16, kColumns, &start);
  std::vector<int32_t> rows;  // the last period in reverse, then the first likewise
  for (int64_t i = 0; i < kPeriod; ++i) rows.push_back(static_cast<int32_t>(table.rows() - 1 - i));
  for (int64_t i = 0; i < kPeriod; ++i) rows.push_back(static_cast<int32_t>(kPeriod - 1 - i));
  const CudaArray<int32_t> rows_on(device(), rows);
  const auto expect_halves_alike = [&](const LargeMatrix& out) {
    EXPECT_EQ(out.read(0, kPeriod), out.read(kPeriod, kPeriod));
    EXPECT_EQ(out.read(kPeriod, 1), table.read(kPeriod - 1, 1));
  };
  OpContext context = device().context();
  for (const auto& kernel : embedding_kernels().all()) {
    const LargeMatrix out(device(), DType::kBF16, 2 * kPeriod, kColumns, nullptr);
    const EmbeddingArgs args{rows_on.span(), table.view(), out.view()};
    if (!kernel.supports(device().device().traits(), args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    kernel.run(context, args);
    expect_halves_alike(out);
  }
  for (const auto& kernel : row_gather_kernels().all()) {
    const LargeMatrix out(device(), DType::kBF16, 2 * kPeriod, kColumns, nullptr);
    const RowGatherArgs args{table.view(), rows_on.span(), out.view()};
    if (!kernel.supports(device().device().traits(), args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    kernel.run(context, args);
    expect_halves_alike(out);
  }
}

// Results of more than 2^31 elements, then weights of as many.
TEST_F(LargeRowsCuda, Linear) {
  const auto pack = [&](const std::vector<float>& values, int64_t n, int64_t k) {
    std::vector<int32_t> order;
    for (int64_t r = 0; r < n; ++r) order.push_back(static_cast<int32_t>(r % kPeriod));
    const LinearSource source{
        {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, Shape{kPeriod, k}}, order};
    return std::move(
        LinearWeight::pack(device().device(), {&source, 1}, LinearCompute::kFast).value());
  };
  const auto expect_case = [&](int64_t m, int64_t n, int64_t k) {
    SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
    const std::vector<float> w = random_floats(rng_, kPeriod * k), x = values(DType::kBF16, k);
    const LinearWeight weight = pack(w, n, k);
    const LargeMatrix x_on(device(), DType::kBF16, m, k, &x);
    for (const auto& kernel : linear_kernels().all()) {
      const LargeMatrix out(device(), DType::kBF16, m, n, nullptr);
      const LinearArgs args{.x = x_on.view(), .weight = &weight, .bias = nullptr, .y = out.view()};
      // The plain loops take minutes over so much.
      if (!kernel.supports(device().device().traits(), args) || kernel.name.ends_with("/any")) {
        continue;
      }
      SCOPED_TRACE(std::string(kernel.name));
      OpContext context = device().context();
      kernel.run(context, args);
      if (m >= 2 * kPeriod) out.expect_periodic();
      // Columns of the last row repeat as the weight's rows do.
      const std::vector<float> last = decode(DType::kBF16, out.read(m - 1, 1));
      for (int64_t c = 0; c < n; ++c) {
        ASSERT_EQ(last[static_cast<size_t>(c)], last[static_cast<size_t>(c % kPeriod)]) << c;
      }
    }
  };
  expect_case(kElements / 128256 / kPeriod * kPeriod, 128256, 64);
  expect_case(1, kElements / 8192 / kPeriod * kPeriod, 8192);
  expect_case(16, kElements / 8192 / kPeriod * kPeriod, 8192);
}

TEST_F(LargeRowsCuda, RopeKv) {
  constexpr int32_t kQueryHeads = 32, kKvHeads = 8, kHeadDim = 128;
  constexpr int64_t kColumns = (kQueryHeads + 2 * kKvHeads) * kHeadDim;
  const std::vector<float> start = values(DType::kBF16, kColumns);
  const std::vector<float> angles = values(DType::kF32, kHeadDim / 2);
  for (const auto& kernel : rope_kv_kernels().all()) {
    const LargeMatrix qkv(device(), DType::kBF16, kColumns, &start);
    const LargeMatrix cos(device(), DType::kF32, qkv.rows(), kHeadDim / 2, &angles);
    KvLayerView kv = alike_kv(DType::kBF16, KeyLayout::kRows, kKvHeads, kHeadDim);
    kv.block_stride = 6 * kv.v_offset;  // blocks over more than 2^31 elements
    const int64_t blocks = qkv.rows() / kv.block_tokens + 1;
    const Buffer cache = std::move(device().device().allocate(blocks * kv.block_stride).value());
    kv.base = cache.data();
    ASSERT_GT(cache.size() / 2, int64_t{1} << 31);
    std::vector<int64_t> slots(static_cast<size_t>(qkv.rows()));
    for (size_t t = 0; t < slots.size(); ++t) slots[t] = static_cast<int64_t>(t);
    const CudaArray<int64_t> slots_on(device(), slots);
    const RopeKvArgs args{.qkv = qkv.view(),
                          .cos = cos.view(),
                          .sin = cos.view(),
                          .style = RopeStyle::kHalf,
                          .query_heads = kQueryHeads,
                          .kv = kv,
                          .slots = slots_on.span()};
    if (!kernel.supports(device().device().traits(), args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    OpContext context = device().context();
    kernel.run(context, args);
    qkv.expect_periodic();
    // Values go to the cache as they are: the last token's are those of the first period's last.
    const std::vector<std::byte> row = qkv.read(kPeriod - 1, 1);
    std::vector<std::byte> value(kHeadDim * 2);
    device().stream().copy_out(value.data(), value_at(kv, qkv.rows() - 1, kKvHeads - 1, 0),
                               static_cast<int64_t>(value.size()));
    ASSERT_TRUE(device().stream().synchronize().ok());
    EXPECT_EQ(std::memcmp(value.data(), row.data() + row.size() - value.size(), value.size()), 0);
  }
}

TEST_F(LargeRowsCuda, Sampling) {
  constexpr int64_t kVocabulary = 128256;
  const std::vector<float> start = values(DType::kF32, kVocabulary);
  const LargeMatrix logits(device(), DType::kF32, kVocabulary, &start);
  const auto count = static_cast<size_t>(logits.rows());
  std::vector<DeviceSampleRow> rows(count);
  for (size_t i = 0; i < count; ++i) {
    rows[i] = {.temperature = i % 2 == 0 ? 0.0f : 0.9f,
               .top_p = 0.95f,
               .min_p = 0.0f,
               .repetition_penalty = 1.0f,
               .logprobs = 1,
               .random = 0x123456789abcdefull * (i % kPeriod + 1),
               .slot = static_cast<int32_t>(i),
               .scored = -1,
               .top_first = static_cast<int32_t>(i)};
  }
  const CudaArray<DeviceSampleRow> rows_on(device(), rows);
  const CudaArray<DeviceLogitBias> biases_on(device(), std::vector<DeviceLogitBias>(1));
  const CudaArray<TokenId> last_on(device(), std::vector<TokenId>(count, -7));
  const CudaArray<DeviceSampleResult> results_on(
      device(), std::vector<DeviceSampleResult>(count, {-9, -9, -9.0f}));
  const CudaArray<DeviceTopLogprob> tops_on(device(), std::vector<DeviceTopLogprob>(count));
  OpContext context = device().context();
  device_sample(context, {.logits = logits.view(),
                          .rows = rows_on.data(),
                          .biases = biases_on.data(),
                          .token_counts = nullptr,
                          .last_tokens = last_on.data(),
                          .results = results_on.data(),
                          .tops = tops_on.data()});
  const std::vector<DeviceSampleResult> results = results_on.read();
  const std::vector<TokenId> last = last_on.read();
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(results[i].fault, 0) << i;
    ASSERT_GE(results[i].token, 0) << i;
    ASSERT_EQ(results[i].token, results[i % kPeriod].token) << i;
    ASSERT_EQ(results[i].logprob, results[i % kPeriod].logprob) << i;
    ASSERT_EQ(last[i], results[i].token) << i;
  }
}

}  // namespace
}  // namespace headrace::large_rows_cuda_test
