// Any bytes as blocks of any quantised type: what they dequantise to is what the packed weight
// reads back as, and every kernel of linear gives the same bits.
//
// Input: type, rows, blocks a row, rows of x, then blocks; they repeat to fill the matrix.
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "ops/linear/linear.h"
#include "ops/packing/packed_format.h"
#include "tensor/quantised_row.h"

using namespace headrace;

namespace {

constexpr size_t kHeader = 4;
constexpr int64_t kRowsMax = 18, kBlocksMax = 2, kBatchMax = 9;

struct Case {
  DType dtype;
  int64_t n, k, m;
  std::vector<std::byte> weight;
  std::vector<float> x;

  ConstTensorView view() const { return {weight.data(), dtype, Shape{n, k}}; }
};

Case read_case(const uint8_t* data, size_t size) {
  constexpr int kFirst = static_cast<int>(DType::kQ8_0);
  Case c;
  c.dtype = static_cast<DType>(kFirst + data[0] % kPackedFormatCount);
  c.n = 1 + data[1] % kRowsMax;
  c.k = (1 + data[2] % kBlocksMax) * dtype_info(c.dtype).block_elements;
  c.m = 1 + data[3] % kBatchMax;
  c.weight.resize(static_cast<size_t>(*tensor_bytes(c.dtype, Shape{c.n, c.k})));
  for (size_t i = 0; i < c.weight.size(); ++i) {
    c.weight[i] = static_cast<std::byte>(data[kHeader + i % (size - kHeader)]);
  }
  Rng rng(size);
  c.x.resize(static_cast<size_t>(c.m * c.k));
  for (float& v : c.x) v = static_cast<float>(rng.uniform() - 0.5);
  return c;
}

// NaNs are all one: which bits they have is not promised.
bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void check_rows(const Case& c, const LinearWeight& weight) {
  std::vector<float> expected(static_cast<size_t>(c.k)), row(expected.size());
  for (int64_t n = 0; n < c.n; ++n) {
    dequantise_row(c.view(), n, expected.data());
    weight.read_row(n, row.data());
    for (size_t i = 0; i < row.size(); ++i) CHECK(same(row[i], expected[i]));
  }
}

void check_kernels(const Case& c, const LinearWeight& weight, OpContext& context) {
  std::vector<float> y(static_cast<size_t>(c.m * c.n)), first;
  const LinearArgs args{
      .x = {reinterpret_cast<const std::byte*>(c.x.data()), DType::kF32, Shape{c.m, c.k}},
      .weight = &weight,
      .bias = nullptr,
      .y = {reinterpret_cast<std::byte*>(y.data()), DType::kF32, Shape{c.m, c.n}}};
  for (const auto& kernel : linear_kernels().all()) {
    if (kernel.name.ends_with("reference")) continue;  // the oracle: other, exact arithmetic
    if (!kernel.supports(context.device.traits(), args)) continue;
    kernel.run(context, args);
    if (first.empty()) first = y;
    for (size_t i = 0; i < y.size(); ++i) CHECK(same(y[i], first[i]));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size <= kHeader) return 0;
  static const std::unique_ptr<Device> device = create_cpu_device(1);
  static const std::unique_ptr<Stream> stream = device->create_stream();
  static Workspace workspace(std::move(device->allocate(1 << 20).value()));
  static SingleRank rank;
  static Mesh mesh{&rank, &rank, &rank};
  const Case c = read_case(data, size);
  const LinearSource source{c.view(), {}};
  OpContext context{*device, *stream, workspace, mesh};
  for (const auto compute : {LinearCompute::kFast, LinearCompute::kFloat32}) {
    const auto weight = LinearWeight::pack(*device, {&source, 1}, compute);
    CHECK(weight.ok());
    check_rows(c, *weight);
    check_kernels(c, *weight, context);
  }
  return 0;
}
