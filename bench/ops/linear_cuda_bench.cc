// Times every CUDA kernel of linear on the matrices of an 8B model, weights rotating so that none
// stays in the cache:
//   linear_cuda_bench [matrix...] [rows...]   one JSON line for each kernel, matrix and number of
//   rows
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "ops/linear.h"
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

std::vector<uint16_t> random_halves(int64_t count) {
  Rng rng(7);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) {
    value = float_to_bfloat16(static_cast<float>(rng.uniform() - 0.5));
  }
  return values;
}

void time_kernel(OpContext& context, const Kernel<LinearArgs>& kernel, const Matrix& matrix,
                 std::span<const LinearWeight> weights, LinearArgs args) {
  args.weight = &weights[0];
  DeviceTraits invariant = context.device.traits();  // so that no threshold hides a kernel
  invariant.batch_invariant = true;
  if (!kernel.supports(context.device.traits(), args) && !kernel.supports(invariant, args)) return;
  if (kernel.name.ends_with("/any") && args.x.rows() > 1) return;
  const auto stream = static_cast<cudaStream_t>(context.stream.native());
  cudaEvent_t start, stop;
  cudaEventCreate(&start);
  cudaEventCreate(&stop);
  const int rounds = matrix.n > 100000 ? 20 : 60;
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
      "{\"bench\": \"linear\", \"kernel\": \"%.*s\", \"matrix\": \"%s\", \"rows\": %lld, "
      "\"us\": %.2f, \"weights_tb_s\": %.2f%s}\n",
      static_cast<int>(kernel.name.size()), kernel.name.data(), matrix.name,
      static_cast<long long>(args.x.rows()), us, bytes / us * 1e-6,
      status.ok() ? "" : ", \"error\": true");
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
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
  const Buffer x = std::move((*device)->allocate(256 * 14336 * 2).value());
  const Buffer y = std::move((*device)->allocate(int64_t{256} * 128256 * 2).value());
  const std::vector<uint16_t> inputs = random_halves(256 * 14336);
  stream->copy_in(x.data(), reinterpret_cast<const std::byte*>(inputs.data()), x.size());
  for (const Matrix& matrix : kMatrices) {
    if (!names.empty() && std::find(names.begin(), names.end(), matrix.name) == names.end())
      continue;
    const std::vector<uint16_t> values = random_halves(matrix.n * matrix.k);
    const LinearSource source{{reinterpret_cast<const std::byte*>(values.data()), DType::kBF16,
                               Shape{matrix.n, matrix.k}},
                              {}};
    std::vector<LinearWeight> weights;
    for (int64_t bytes = 0; bytes < kRotatedBytes; bytes += 2 * matrix.n * matrix.k) {
      weights.push_back(
          std::move(LinearWeight::pack(**device, {&source, 1}, LinearCompute::kFast).value()));
    }
    for (const int64_t rows : row_counts) {
      const LinearArgs args{.x = {x.data(), DType::kBF16, Shape{rows, matrix.k}},
                            .weight = nullptr,
                            .bias = nullptr,
                            .y = {y.data(), DType::kBF16, Shape{rows, matrix.n}}};
      for (const auto& kernel : linear_kernels().all()) {
        time_kernel(context, kernel, matrix, weights, args);
      }
    }
  }
  return 0;
}
