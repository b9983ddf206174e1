// Times every CUDA kernel of linear, of gated_linear on its gate and up, and of both with the norm
// before them, on the matrices of an 8B model and of SmolLM2-135M (small_*), weights rotating so
// that none stays in the cache, launches recorded as in a step:
//   linear_cuda_bench [matrix...] [rows...]   one JSON line for each kernel, matrix and number of
//   rows
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "ops/norm_linear.h"
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
                                {"output", 128256, 4096},
                                {"small_qkv", 960, 576},
                                {"small_attention_out", 576, 576},
                                {"small_gate_up", 3072, 576},
                                {"small_down", 576, 1536}};
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

const LinearWeight*& weight_of(LinearArgs& args) { return args.weight; }
const LinearWeight*& weight_of(GatedLinearArgs& args) { return args.weight; }
const LinearWeight*& weight_of(NormLinearArgs& args) { return args.linear.weight; }
const LinearWeight*& weight_of(NormGatedLinearArgs& args) { return args.gated.weight; }

// Milliseconds of `rounds` runs, one after the other in a recording: without it the host's launches
// are what a small product's time is.
template <class Args>
float time_recorded(OpContext& context, const Kernel<Args>& kernel,
                    std::span<const LinearWeight> weights, Args args, int rounds) {
  const auto stream = static_cast<cudaStream_t>(context.stream.native());
  cudaGraph_t graph;
  cudaGraphExec_t recorded;
  cudaEvent_t start, stop;
  cudaEventCreate(&start);
  cudaEventCreate(&stop);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  for (int round = 0; round < rounds; ++round) {
    weight_of(args) = &weights[static_cast<size_t>(round) % weights.size()];
    kernel.run(context, args);
  }
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&recorded, graph, 0);
  cudaGraphLaunch(recorded, stream);
  cudaEventRecord(start, stream);
  cudaGraphLaunch(recorded, stream);
  cudaEventRecord(stop, stream);
  cudaEventSynchronize(stop);
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, start, stop);
  cudaGraphExecDestroy(recorded);
  cudaGraphDestroy(graph);
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  return milliseconds;
}

// The weights take turns.
template <class Args>
void time_kernel(OpContext& context, const char* op, const Kernel<Args>& kernel,
                 const Matrix& matrix, std::span<const LinearWeight> weights, int64_t rows,
                 Args args) {
  weight_of(args) = &weights[0];
  if (!takes(context.device, kernel, args)) return;
  if (kernel.name.ends_with("/any") && rows > 1) return;
  const double flops = 2.0 * static_cast<double>(rows * matrix.n * matrix.k);
  // Some 0.1 s where the tensor cores are the limit: the clock follows the power.
  const int most = matrix.n > 100000 ? 20 : matrix.k < 4096 ? 360 : 60;
  const int rounds = std::clamp(static_cast<int>(6e13 / flops), 12, most);
  for (int round = 0; round < 3; ++round) kernel.run(context, args);
  const double us = time_recorded(context, kernel, weights, args, rounds) * 1000.0 / rounds;
  const Status status = context.stream.synchronize();
  const double bytes = 2.0 * static_cast<double>(matrix.n * matrix.k);
  std::printf(
      "{\"bench\": \"%s\", \"kernel\": \"%.*s\", \"matrix\": \"%s\", \"rows\": %lld, "
      "\"us\": %.2f, \"weights_tb_s\": %.2f, \"tflops\": %.1f%s}\n",
      op, static_cast<int>(kernel.name.size()), kernel.name.data(), matrix.name,
      static_cast<long long>(rows), us, bytes / us * 1e-6, flops / us * 1e-6,
      status.ok() ? "" : ", \"error\": true");
  std::fflush(stdout);
}

// Places on the device that every matrix uses, for so many rows.
struct Places {
  Buffer x, y, gated, normed, norm;

  Places(Device& device, Stream& stream, int64_t rows, int64_t columns_out)
      : x(std::move(device.allocate(rows * kColumnsMax * 2).value())),
        y(std::move(device.allocate(rows * columns_out * 2).value())),
        gated(std::move(device.allocate(rows * kColumnsMax * 2).value())),
        normed(std::move(device.allocate(rows * kColumnsMax * 2).value())),
        norm(std::move(device.allocate(kColumnsMax * 4).value())) {
    const std::vector<float> ones(kColumnsMax, 1.0f);
    stream.copy_in(norm.data(), reinterpret_cast<const std::byte*>(ones.data()), norm.size());
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
  const auto time_all = [&](const char* op, const auto& kernels, int64_t rows, const auto& args) {
    for (const auto& kernel : kernels.all()) {
      time_kernel(context, op, kernel, matrix, weights, rows, args);
    }
  };
  for (const int64_t rows : row_counts) {
    const TensorView x{places.x.data(), DType::kBF16, Shape{rows, matrix.k}};
    const TensorView y{places.y.data(), DType::kBF16, Shape{rows, matrix.n}};
    const RmsNormArgs norm{.x = x,
                           .residual = {},
                           .weight = reinterpret_cast<const float*>(places.norm.data()),
                           .eps = 1e-5f,
                           .out = {places.normed.data(), DType::kBF16, Shape{rows, matrix.k}}};
    LinearArgs plain{.x = x, .weight = nullptr, .bias = nullptr, .y = y};
    time_all("linear", linear_kernels(), rows, plain);
    plain.x = norm.out;
    time_all("norm_linear", norm_linear_kernels(), rows, NormLinearArgs{norm, plain});
    if (!std::string_view(matrix.name).ends_with("gate_up")) continue;
    GatedLinearArgs gated{.x = x,
                          .weight = nullptr,
                          .bias = nullptr,
                          .gate_up = y,
                          .y = {places.gated.data(), DType::kBF16, Shape{rows, matrix.n / 2}}};
    time_all("gated_linear", gated_linear_kernels(), rows, gated);
    gated.x = norm.out;
    time_all("norm_gated_linear", norm_gated_linear_kernels(), rows,
             NormGatedLinearArgs{norm, gated});
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
