// norm_route on CUDA: every kernel against norms and products in double, and its lists against the
// CPU's of the logits that it wrote itself.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/linear/norm_route.h"

namespace headrace::norm_route_cuda_test {
namespace {

struct NormRouteCase {
  int64_t rows, columns;
  RouterRule rule;
  bool residual;
};

// x + residual, normalised, as a GPU rounds them.
struct NormedRows {
  std::vector<float> x, normed;
};
NormedRows normed_rows(DType dtype, int64_t columns, std::vector<float> x,
                       const std::vector<float>& residual, const std::vector<float>& weight) {
  for (size_t i = 0; i < residual.size(); ++i) x[i] += residual[i];
  x = decode(dtype, encode(dtype, x));
  std::vector<float> normed(x.size());
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(columns)) {
    double squares = 0;
    for (size_t c = 0; c < static_cast<size_t>(columns); ++c) {
      squares += double{x[first + c]} * x[first + c];
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(columns) + 1e-6);
    for (size_t c = 0; c < static_cast<size_t>(columns); ++c) {
      normed[first + c] = static_cast<float>(x[first + c] * scale * weight[c]);
    }
  }
  return {x, decode(dtype, encode(dtype, normed))};
}

// The lists that the CPU makes of logits, number for number.
void expect_lists(const RouterRule& rule, std::vector<float> logits, int64_t rows,
                  const std::vector<int32_t>& starts, const std::vector<int32_t>& listed,
                  const std::vector<int32_t>& places, const std::vector<float>& weights) {
  TestDevice cpu = TestDevice::cpu(1);
  OpContext context = cpu.context();
  std::vector<int32_t> want_starts(starts.size()), want_listed(listed.size()),
      want_places(places.size());
  std::vector<float> want_weights(weights.size());
  route_experts(context, {.rule = rule,
                          .logits = host_view(logits, rows, rule.logits()),
                          .bias = nullptr,
                          .out = {want_starts, want_listed, want_weights, want_places}});
  EXPECT_EQ(starts, want_starts);
  EXPECT_EQ(listed, want_listed);
  EXPECT_EQ(places, want_places);
  expect_near(weights, want_weights, 1e-6, 1e-9);
}

void expect_every_kernel(TestDevice& cuda, const NormRouteCase& c, DType dtype) {
  Rng rng(static_cast<uint64_t>(c.rows * 31 + c.columns));
  const int64_t logit_count = c.rule.logits();
  const std::vector<float> x = rounded_floats(rng, dtype, c.rows * c.columns);
  const std::vector<float> residual =
      c.residual ? rounded_floats(rng, dtype, c.rows * c.columns) : std::vector<float>();
  const std::vector<float> weight = random_floats(rng, c.columns);
  std::vector<float> router = random_floats(rng, logit_count * c.columns, 0.1f);
  const NormedRows expected = normed_rows(dtype, c.columns, x, residual, weight);
  const LinearSource source{host_view(router, logit_count, c.columns), {}};
  const LinearWeight router_on =
      LinearWeight::pack(cuda.device(), {&source, 1}, LinearCompute::kFloat32).value();
  const CudaArray<float> weight_on(cuda, weight);
  const auto networks = static_cast<size_t>(c.rule.networks());
  const auto taken = static_cast<size_t>(c.rows * c.rule.networks_of_row());
  for (const auto& kernel : norm_route_kernels().all()) {
    const CudaMatrix x_on(cuda, dtype, c.rows, c.columns, 8, &x);
    const CudaMatrix residual_on(cuda, dtype, c.rows, c.columns, 8, c.residual ? &residual : &x);
    const CudaMatrix normed(cuda, dtype, c.rows, c.columns, 8, nullptr);
    const CudaMatrix logits(cuda, DType::kF32, c.rows, logit_count, 3, nullptr);
    const CudaArray<int32_t> starts(cuda, std::vector<int32_t>(networks + 1, -7)),
        listed(cuda, std::vector<int32_t>(taken, -7)),
        places(cuda, std::vector<int32_t>(taken, -7));
    const CudaArray<float> weights(cuda, std::vector<float>(taken, -7.0f));
    const NormRouteArgs args{
        .norm = {.x = x_on.view(),
                 .residual = c.residual ? ConstTensorView(residual_on.view()) : ConstTensorView(),
                 .weight = weight_on.data(),
                 .eps = 1e-6f,
                 .out = normed.view()},
        .router = {.x = normed.view(), .weight = &router_on, .bias = nullptr, .y = logits.view()},
        .route = {.rule = c.rule,
                  .logits = logits.view(),
                  .bias = nullptr,
                  .out = {starts.span(), listed.span(), weights.span(), places.span()}}};
    if (!kernel.supports(cuda.device().traits(), args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    OpContext context = cuda.context();
    kernel.run(context, args);
    expect_near(x_on.read(), expected.x, 0, 0);
    expect_near(normed.read(), expected.normed, unit_of(dtype), 1e-5);
    const std::vector<float> made = logits.read();
    std::vector<float> rows = normed.read();
    for (int64_t i = 0; i < c.rows * logit_count; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < c.columns; ++k) {
        sum += double{rows[static_cast<size_t>(i / logit_count * c.columns + k)]} *
               router[static_cast<size_t>(i % logit_count * c.columns + k)];
      }
      const double error = 1e-5 * std::abs(sum) + 2e-6 * std::sqrt(static_cast<double>(c.columns));
      ASSERT_NEAR(made[static_cast<size_t>(i)], sum, error) << i;
    }
    expect_lists(c.rule, made, c.rows, starts.read(), listed.read(), places.read(), weights.read());
  }
}

TEST(NormRouteCuda, EveryKernelIsTheThreeOps) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 2, 4, 5}) {
      for (const bool residual : {false, true}) {
        for (const NormRouteCase& c : std::vector<NormRouteCase>{
                 {rows, 2048, {.experts = 128, .used = 8, .normalised = true}, residual},
                 {rows, 64, {.experts = 1024, .used = 8}, residual},
                 {rows, 5000, {.experts = 60, .used = 4, .shared = SharedExpert::kGated}, residual},
                 {rows, 36, {.experts = 5, .used = 2, .normalised = true}, residual}}) {
          SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(c.columns) + ", " +
                       std::to_string(c.rule.experts) + " experts");
          expect_every_kernel(cuda, c, dtype);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace::norm_route_cuda_test
