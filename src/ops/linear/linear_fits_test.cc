// Every kernel of the products is asked about every weight, on every kind of device: none may do
// more than answer, and a product of each kind of weight has a kernel.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ops/fake_gpu.h"
#include "ops/linear/grouped_linear.h"
#include "ops/linear/head_linear.h"
#include "ops/linear/lora_linear.h"
#include "ops/linear/norm_linear.h"
#include "ops/linear/norm_route.h"
#include "ops/linear/residual_linear.h"
#include "ops/op_fixture.h"
#include "tensor/uploader.h"

namespace headrace::linear_fits_test {
namespace {

// What a weight is made of: stacked matrices, each of a file's type, and what they become.
struct Kind {
  std::string name;
  std::vector<DType> sources;
  std::optional<DType> quantise_to = {};
  LinearCompute compute = LinearCompute::kFast;
};

std::vector<Kind> kinds() {
  return {{.name = "F32", .sources = {DType::kF32}, .compute = LinearCompute::kFloat32},
          {.name = "BF16", .sources = {DType::kBF16, DType::kBF16}},
          {.name = "F8", .sources = {DType::kF32}, .quantise_to = DType::kF8},
          {.name = "Q4_K", .sources = {DType::kQ4_K}},
          {.name = "Q4_K and Q6_K", .sources = {DType::kQ4_K, DType::kQ6_K}},
          {.name = "Q8_0 and BF16", .sources = {DType::kQ8_0, DType::kBF16}}};
}

// [n, k] of zeros.
LinearWeight weight_of(Device& device, const Kind& kind, int64_t n, int64_t k) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<LinearSource> sources;
  const auto parts = std::ssize(kind.sources);
  for (const DType type : kind.sources) {
    const Shape shape{n / parts, k};
    memory.emplace_back(static_cast<size_t>(tensor_bytes(type, shape).value()));
    sources.push_back({.weight = {memory.back().data(), type, shape},
                       .row_order = {},
                       .quantise_to = kind.quantise_to});
  }
  if (device.kind() == DeviceKind::kCpu) {
    return LinearWeight::pack(device, sources, kind.compute).value();
  }
  Uploader uploader(device, 1);
  LinearWeight weight = LinearWeight::start_pack(device, uploader, sources, kind.compute).value();
  CHECK(uploader.finish().ok());
  return weight;
}

std::vector<DeviceTraits> devices(DeviceKind kind) {
  std::vector<DeviceTraits> all;
  for (const bool invariant : {false, true}) {
    if (kind == DeviceKind::kCuda) {
      all.push_back(h200(invariant));
      all.push_back(h200(invariant));
      all.back().compute_capability = 80;
    } else {
      CpuFeatures every;
      every.avx2 = every.avx_vnni = every.avx512 = every.avx512_vnni = every.avx512_bf16 = true;
      every.amx_bf16 = every.amx_int8 = true;
      all.push_back({.kind = kind, .batch_invariant = invariant});
      all.push_back({.kind = kind, .cpu = every, .batch_invariant = invariant});
    }
  }
  return all;
}

// Asks all kernels of an op, those by name too.
template <class Args>
void ask(const KernelSet<Args>& kernels, const DeviceTraits& traits, const Args& args) {
  for (const Kernel<Args>& kernel : kernels.all()) (void)kernel.supports(traits, args);
}

// The arguments of every op with a weight [n, k] and m rows of x, which begin `from` bytes behind a
// whole access. Nothing reads their memory.
struct Products {
  const LinearWeight& weight;
  DType dtype;
  int64_t m;
  int64_t from = 0;

  TensorView rows(int64_t columns) const {
    std::byte* const at = reinterpret_cast<std::byte*>((uintptr_t{1} << 20) + uintptr_t(from));
    const int64_t size = dtype_info(dtype).block_bytes;
    return {at, dtype, Shape{m, columns}, columns * size + from};
  }
  const float* floats() const { return reinterpret_cast<const float*>(uintptr_t{1} << 20); }

  LinearArgs linear() const {
    return {.x = rows(weight.k()), .weight = &weight, .bias = nullptr, .y = rows(weight.n())};
  }
  GatedLinearArgs gated(Activation activation) const {
    return {.x = rows(weight.k()),
            .weight = &weight,
            .bias = nullptr,
            .activation = activation,
            .gate_up = rows(weight.n()),
            .y = rows(weight.n() / 2)};
  }
  RmsNormArgs norm() const {
    return {.x = rows(weight.k()),
            .residual = rows(weight.k()),
            .weight = floats(),
            .eps = 1e-5f,
            .out = rows(weight.k())};
  }
  ResidualLinearArgs residual(float scale) const {
    return {.in = rows(weight.k()),
            .weight = &weight,
            .bias = nullptr,
            .scale = scale,
            .x = rows(weight.n()),
            .branch = rows(weight.n())};
  }
  // Eight experts.
  GroupedLinearArgs grouped(std::optional<Activation> gate) const {
    static constexpr int32_t kStarts[9] = {};
    GroupedLinearArgs args;
    args.x = rows(weight.k());
    args.weight = &weight;
    args.starts = kStarts;
    args.gate = gate;
    args.y = rows(weight.n() / (gate ? 16 : 8));
    return args;
  }
  HeadLinearArgs heads() const {
    return {.heads = 8, .x = rows(8 * weight.k()), .weight = &weight, .y = rows(weight.n())};
  }
  NormRouteArgs route() const {
    NormRouteArgs args{.norm = norm(), .router = linear(), .route = {}};
    args.route.rule.experts = static_cast<int32_t>(weight.n());
    args.route.rule.used = 2;
    args.route.logits = args.router.y;
    return args;
  }
};

void ask_all(const DeviceTraits& traits, const Products& products) {
  ask(linear_kernels(), traits, products.linear());
  ask(norm_linear_kernels(), traits, {products.norm(), products.linear()});
  for (const Activation activation : {Activation::kSilu, Activation::kClampedSwish}) {
    ask(gated_linear_kernels(), traits, products.gated(activation));
    ask(norm_gated_linear_kernels(), traits, {products.norm(), products.gated(activation)});
  }
  for (const float scale : {1.0f, 0.5f}) {
    ask(residual_linear_kernels(), traits, products.residual(scale));
  }
  ask(grouped_linear_kernels(), traits, products.grouped({}));
  ask(grouped_linear_kernels(), traits, products.grouped(Activation::kSilu));
  ask(head_linear_kernels(), traits, products.heads());
  ask(norm_route_kernels(), traits, products.route());
}

void ask_about_every_weight(Device& device) {
  const bool cuda = device.kind() == DeviceKind::kCuda;
  for (const Kind& kind : kinds()) {
    if (kind.quantise_to && !cuda) continue;  // FP8 is a GPU's
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{32, 256}, {2048, 2048}}) {
      const LinearWeight weight = weight_of(device, kind, n, k);
      for (const DeviceTraits& traits : devices(device.kind())) {
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          if (!cuda && dtype != DType::kF32) continue;
          for (const int64_t m : {1, 4, 9, 64, 512, 4096}) {
            for (const int64_t from : {0, 2, 4, 8}) {
              if (dtype == DType::kF32 && from == 2) continue;
              const Products products{weight, dtype, m, from};
              ask_all(traits, products);
              // What a model of this weight asks for has a kernel, wherever rows of x lie.
              const bool of_the_weight =
                  dtype ==
                  (kind.compute == LinearCompute::kFloat32 || !cuda ? DType::kF32 : DType::kBF16);
              if (!of_the_weight) continue;
              EXPECT_NE(linear_kernels().find(traits, products.linear()), nullptr)
                  << fmt::format("{} [{}, {}], {} rows {} bytes behind", kind.name, n, k, m, from);
            }
          }
        }
      }
    }
  }
}

TEST(LinearFits, NoKernelOfACpuDoesMoreThanAnswer) {
  const auto device = create_cpu_device(1, CpuFeatures::detect());
  ask_about_every_weight(*device);
}

TEST(LinearFits, NoKernelOfAGpuDoesMoreThanAnswer) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no CUDA";
  FakeGpu gpu;
  ask_about_every_weight(gpu);
}

// As tests and benches ask for the kernels of a CPU: kernels of a GPU look at the device first.
TEST(LinearFits, ArgumentsOfNothingAreNoKernelsOfAGpu) {
  for (const DeviceTraits& traits : devices(DeviceKind::kCpu)) {
    const auto none = [&](const auto& kernels, const auto& args) {
      for (const auto& kernel : kernels) EXPECT_FALSE(kernel.supports(traits, args)) << kernel.name;
    };
    none(linear_cuda_kernels(), LinearArgs{});
    none(norm_linear_cuda_kernels(), NormLinearArgs{});
    none(gated_linear_cuda_kernels(), GatedLinearArgs{});
    none(norm_gated_linear_cuda_kernels(), NormGatedLinearArgs{});
    none(residual_linear_cuda_kernels(), ResidualLinearArgs{});
    none(grouped_linear_cuda_kernels(), GroupedLinearArgs{});
    none(head_linear_cuda_kernels(), HeadLinearArgs{});
    none(norm_route_cuda_kernels(), NormRouteArgs{});
    none(lora_linear_cuda_kernels(), LoraLinearArgs{});
  }
}

}  // namespace
}  // namespace headrace::linear_fits_test
