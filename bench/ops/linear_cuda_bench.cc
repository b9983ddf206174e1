// Times every CUDA kernel of linear, of gated_linear on its gate and up, and of both with the norm
// before them, on the matrices of an 8B model and of SmolLM2-135M (small_*), weights rotating so
// that none stays in the cache, launches recorded as in a step:
//   linear_cuda_bench [type] [matrix...] [rows...]   one JSON line for each kernel, matrix and
//   number of rows; the type is that of the weights: BF16, FP8 (F8_E4M3) or a block type (Q4_K)
//   linear_cuda_bench layer [type] [rows...] [kernel...]   all products of a layer of an 8B model
//   with their norms and gates, one after the other as in a step, by the kernels that would run
//   there or those named; a norm stands where attention would
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "ops/linear/activated_linear.h"
#include "ops/linear/fused.h"
#include "ops/packing/random_matrix.h"
#include "recorded_time.h"
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
const LinearWeight*& weight_of(ActivatedLinearArgs& args) { return args.linear.weight; }

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
  const auto run_all = [&] {
    for (int round = 0; round < rounds; ++round) {
      weight_of(args) = &weights[static_cast<size_t>(round) % weights.size()];
      kernel.run(context, args);
    }
  };
  const double us = time_recorded(context, run_all) * 1000.0 / rounds;
  const Status status = context.stream.synchronize();
  const auto bytes = static_cast<double>(weights[0].packed_bytes());
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
        gated(std::move(device.allocate(rows * 2 * kColumnsMax * 2).value())),
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

void time_matrix(OpContext& context, const Matrix& matrix, DType type, const Places& places,
                 std::span<const int64_t> row_counts) {
  Rng rng(7);
  const bool float8 = type == DType::kF8;
  const RandomMatrix values(rng, float8 ? DType::kBF16 : type, matrix.n, matrix.k);
  LinearSource source{values.view(), {}};
  if (float8) source.quantise_to = type;
  std::vector<LinearWeight> weights;
  for (int64_t bytes = 0; bytes < kRotatedBytes; bytes += weights.back().packed_bytes()) {
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
    if (std::string_view(matrix.name).ends_with("down")) {
      plain.x = x;
      const GatedActivationArgs gates{
          .gate_up = {places.gated.data(), DType::kBF16, Shape{rows, 2 * matrix.k}}, .out = x};
      time_all("activated_linear", activated_linear_kernels(), rows,
               ActivatedLinearArgs{gates, plain});
    }
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

// The products of some layers of an 8B model.
class Layers {
 public:
  static constexpr int kLayers = 3;
  static constexpr int64_t kHidden = 4096, kQkv = 6144, kFeatures = 14336;
  static constexpr int64_t kColumns = kQkv + 3 * kHidden + 3 * kFeatures;  // of all that is between

  Layers(Device& device, DType type) {
    const bool packed = is_quantised(type);
    Rng rng(7);
    const RandomMatrix values(rng, packed ? type : DType::kBF16, 2 * kFeatures, kHidden);
    for (int i = 0; i < kLayers; ++i) {
      for (const auto& [n, k] : {std::pair{kQkv, kHidden},
                                 {kHidden, kHidden},
                                 {2 * kFeatures, kHidden},
                                 {kHidden, kFeatures}}) {
        LinearSource source{{values.view().data, values.view().dtype, Shape{n, k}}, {}};
        if (type == DType::kF8) source.quantise_to = type;
        weights_.push_back(
            std::move(LinearWeight::pack(device, {&source, 1}, LinearCompute::kFast).value()));
      }
    }
  }

  // `hidden`, `norm`: of places for `rows` rows; everything else lies behind each other in
  // `places.y`.
  void run(OpContext& context, const Places& places, int64_t rows) const {
    std::byte* at = places.y.data();
    const auto take = [&](int64_t columns) {
      const TensorView view{at, DType::kBF16, Shape{rows, columns}};
      at += 2 * rows * columns;
      return view;
    };
    const TensorView hidden{places.x.data(), DType::kBF16, Shape{rows, kHidden}};
    const TensorView qkv = take(kQkv), heads = take(kHidden), branch = take(kHidden),
                     normed = take(kHidden), gate_up = take(2 * kFeatures),
                     activated = take(kFeatures);
    bool waits = false;
    const auto norm = [&](const TensorView& x, const TensorView& out) {
      return RmsNormArgs{.x = x,
                         .residual = waits ? branch : TensorView{},
                         .weight = reinterpret_cast<const float*>(places.norm.data()),
                         .eps = 1e-5f,
                         .out = out};
    };
    for (int i = 0; i < kLayers; ++i) {
      const LinearWeight* weight = &weights_[static_cast<size_t>(4 * i)];
      norm_linear(context, {.norm = norm(hidden, normed),
                            .linear = {.x = normed, .weight = weight, .bias = nullptr, .y = qkv}});
      waits = false;
      TensorView queries = qkv;
      queries.shape = Shape{rows, kHidden};
      rms_norm(context, norm(queries, heads));
      waits = !residual_linear(
          context,
          {.in = heads, .weight = weight + 1, .bias = nullptr, .x = hidden, .branch = branch});
      const RmsNormArgs before = norm(hidden, normed);
      const ResidualLinearArgs down{
          .in = activated, .weight = weight + 3, .bias = nullptr, .x = hidden, .branch = branch};
      const ActivatedLinearArgs end{.gates = {.gate_up = gate_up, .out = activated},
                                    .linear = residual_product(context.device.traits(), down)};
      if (activation_joins(context, end)) {
        norm_linear(context,
                    {.norm = before,
                     .linear = {.x = normed, .weight = weight + 2, .bias = nullptr, .y = gate_up}});
        activated_linear(context, end);
        waits = end.linear.output == LinearOutput::kStore;
        continue;
      }
      norm_gated_linear(context, {.norm = before,
                                  .gated = {.x = normed,
                                            .weight = weight + 2,
                                            .bias = nullptr,
                                            .gate_up = gate_up,
                                            .y = activated}});
      waits = !residual_linear(context, down);
    }
  }

 private:
  std::vector<LinearWeight> weights_;
};

void time_layer(OpContext& context, const Layers& layers, const Places& places, int64_t rows) {
  constexpr int kTurns = 6;
  layers.run(context, places, rows);
  const auto run_all = [&] {
    for (int turn = 0; turn < kTurns; ++turn) layers.run(context, places, rows);
  };
  const double us = time_recorded(context, run_all) * 1000.0 / (kTurns * Layers::kLayers);
  const Status status = context.stream.synchronize();
  std::printf("{\"bench\": \"layer\", \"kernels\": \"%s\", \"rows\": %lld, \"us\": %.2f%s}\n",
              context.hooks->preferred.empty() ? "default" : context.hooks->preferred[0].c_str(),
              static_cast<long long>(rows), us, status.ok() ? "" : ", \"error\": true");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int64_t> row_counts;
  std::vector<std::string_view> names;
  DType type = DType::kBF16;
  OpHooks hooks;
  for (int i = 1; i < argc; ++i) {
    const auto* const named = std::find_if(
        std::begin(kWeightTypes), std::end(kWeightTypes),
        [&](DType weight_type) { return dtype_name(weight_type) == std::string_view(argv[i]); });
    if (argv[i] == dtype_name(DType::kF8)) {
      type = DType::kF8;
    } else if (named != std::end(kWeightTypes)) {
      type = *named;
    } else if (std::atoll(argv[i]) > 0) {
      row_counts.push_back(std::atoll(argv[i]));
    } else if (std::string_view(argv[i]).find('/') != std::string_view::npos) {
      hooks.preferred.push_back(argv[i]);
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
  Workspace workspace(std::move((*device)->allocate(256 << 20).value()));
  SingleRank one;
  Mesh mesh{&one, &one, &one};
  OpContext context{**device, *stream, workspace, mesh, &hooks};
  const auto chosen = [&](const Matrix& matrix) {
    return names.empty() || std::find(names.begin(), names.end(), matrix.name) != names.end();
  };
  int64_t columns = Layers::kColumns;
  for (const Matrix& matrix : kMatrices) {
    if (chosen(matrix)) columns = std::max(columns, matrix.n);
  }
  const Places places(**device, *stream, *std::max_element(row_counts.begin(), row_counts.end()),
                      columns);
  if (std::find(names.begin(), names.end(), "layer") != names.end()) {
    const Layers layers(**device, type);
    for (const int64_t rows : row_counts) time_layer(context, layers, places, rows);
  }
  for (const Matrix& matrix : kMatrices) {
    if (chosen(matrix)) time_matrix(context, matrix, type, places, row_counts);
  }
  return 0;
}
