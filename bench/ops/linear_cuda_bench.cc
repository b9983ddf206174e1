// Times every CUDA kernel of linear, and of gated_linear on its gate and up, on the matrices of an
// 8B model, weights rotating so that none stays in the cache:
//   linear_cuda_bench [matrix...] [rows...]   one JSON line for each kernel, matrix and number of
//   rows
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "ops/gated_linear.h"
#include "tensor/half.h"

using namespace headrace;

namespace {

struct Matrix {
  const char* name;
  int64_t n, k;
};
constexpr Matrix kMatrices[] = {{"qkv", 6144, 4096},
                                {"attention_out", 4096, 4096},
                                {"gate_up", 28672, 4096},
                                {"down", 4096, 14336},
                                {"output", 128256, 4096}};
constexpr int64_t kRotatedBytes = 400 << 20;  // seven times the L2

constexpr int64_t kColumnsMax = 14336;  // of x

std::vector<uint16_t> random_halves(int64_t count) {
  Rng rng(7);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) {
    value = float_to_bfloat16(static_cast<float>(rng.uniform() - 0.5));
  }
  return values;
}

// Whether a kernel can run this, where it is the choice and where batch invariance makes it that.
template <class Args>
bool takes(const Device& device, const Kernel<Args>& kernel, const Args& args) {
  DeviceTraits invariant = device.traits();
  invariant.batch_invariant = true;
  return kernel.supports(device.traits(), args) || kernel.supports(invariant, args);
}

// Of linear or gated_linear; the weights take turns.
template <class Args>
void time_kernel(OpContext& context, const char* op, const Kernel<Args>& kernel,
                 const Matrix& matrix, std::span<const LinearWeight> weights, Args args) {
  args.weight = &weights[0];
  if (!takes(context.device, kernel, args)) return;
  if (kernel.name.ends_with("/any") && args.x.rows() > 1) return;
  const auto stream = static_cast<cudaStream_t>(context.stream.native());
  cudaEvent_t start, stop;
  cudaEventCreate(&start);
  cudaEventCreate(&stop);
  const double flops = 2.0 * static_cast<double>(args.x.rows() * matrix.n * matrix.k);
  // Some 0.1 s where the tensor cores are the limit: the clock follows the power.
  const int rounds = std::clamp(static_cast<int>(6e13 / flops), 12, matrix.n > 100000 ? 20 : 60);
  for (int round = 0; round < 3; ++round) kernel.run(context, args);
  cudaEventRecord(start, stream);
  for (int round = 0; round < rounds; ++round) {
    args.weight = &weights[static_cast<size_t>(round) % weights.size()];
    kernel.run(context, args);
  }
  cudaEventRecord(stop, stream);
  const Status status = context.stream.synchronize();
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, start, stop);
  const double us = milliseconds * 1000.0 / rounds;
  const double bytes = 2.0 * static_cast<double>(matrix.n * matrix.k);
  std::printf(
      "{\"bench\": \"%s\", \"kernel\": \"%.*s\", \"matrix\": \"%s\", \"rows\": %lld, "
      "\"us\": %.2f, \"weights_tb_s\": %.2f, \"tflops\": %.1f%s}\n",
      op, static_cast<int>(kernel.name.size()), kernel.name.data(), matrix.name,
      static_cast<long long>(args.x.rows()), us, bytes / us * 1e-6, flops / us * 1e-6,
      status.ok() ? "" : ", \"error\": true");
  std::fflush(stdout);
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
}

// Places on the device that every matrix uses, for so many rows.
struct Places {
  Buffer x, y, gated;

  Places(Device& device, Stream& stream, int64_t rows, int64_t columns_out)
      : x(std::move(device.allocate(rows * kColumnsMax * 2).value())),
        y(std::move(device.allocate(rows * columns_out * 2).value())),
        gated(std::move(device.allocate(rows * kColumnsMax * 2).value())) {
    const std::vector<uint16_t> inputs = random_halves(std::min<int64_t>(rows, 256) * kColumnsMax);
    const auto bytes = static_cast<int64_t>(inputs.size() * sizeof(uint16_t));
    for (int64_t at = 0; at < x.size(); at += bytes) {
      stream.copy_in(x.data() + at, reinterpret_cast<const std::byte*>(inputs.data()),
                     std::min(bytes, x.size() - at));
    }
    CHECK(stream.synchronize().ok());
  }
};

void time_matrix(OpContext& context, const Matrix& matrix, const Places& places,
                 std::span<const int64_t> row_counts) {
  const std::vector<uint16_t> values = random_halves(matrix.n * matrix.k);
  const LinearSource source{
      {reinterpret_cast<const std::byte*>(values.data()), DType::kBF16, Shape{matrix.n, matrix.k}},
      {}};
  std::vector<LinearWeight> weights;
  for (int64_t bytes = 0; bytes < kRotatedBytes; bytes += 2 * matrix.n * matrix.k) {
    weights.push_back(
        std::move(LinearWeight::pack(context.device, {&source, 1}, LinearCompute::kFast).value()));
  }
  for (const int64_t rows : row_counts) {
    const ConstTensorView x{places.x.data(), DType::kBF16, Shape{rows, matrix.k}};
    const TensorView y{places.y.data(), DType::kBF16, Shape{rows, matrix.n}};
    const LinearArgs args{.x = x, .weight = nullptr, .bias = nullptr, .y = y};
    for (const auto& kernel : linear_kernels().all()) {
      time_kernel(context, "linear", kernel, matrix, weights, args);
    }
    if (std::string_view(matrix.name) != "gate_up") continue;
    const GatedLinearArgs gated{
        .x = x,
        .weight = nullptr,
        .bias = nullptr,
        .gate_up = y,
        .y = {places.gated.data(), DType::kBF16, Shape{rows, matrix.n / 2}}};
    for (const auto& kernel : gated_linear_kernels().all()) {
      time_kernel(context, "gated_linear", kernel, matrix, weights, gated);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int64_t> row_counts;
  std::vector<std::string_view> names;
  for (int i = 1; i < argc; ++i) {
    if (std::atoll(argv[i]) > 0) {
      row_counts.push_back(std::atoll(argv[i]));
    } else {
      names.push_back(argv[i]);
    }
  }
  if (row_counts.empty()) row_counts = {1, 4, 8, 16, 32, 64, 128, 256};
  auto device = create_cuda_device(0);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().message().c_str());
    return 1;
  }
  const auto stream = (*device)->create_stream();
  Workspace workspace(std::move((*device)->allocate(64 << 20).value()));
  SingleRank one;
  Mesh mesh{&one, &one, &one};
  OpContext context{**device, *stream, workspace, mesh};
  const auto chosen = [&](const Matrix& matrix) {
    return names.empty() || std::find(names.begin(), names.end(), matrix.name) != names.end();
  };
  int64_t columns = 0;
  for (const Matrix& matrix : kMatrices) {
    if (chosen(matrix)) columns = std::max(columns, matrix.n);
  }
  const Places places(**device, *stream, *std::max_element(row_counts.begin(), row_counts.end()),
                      columns);
  for (const Matrix& matrix : kMatrices) {
    if (chosen(matrix)) time_matrix(context, matrix, places, row_counts);
  }
  return 0;
}
