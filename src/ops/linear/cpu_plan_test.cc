#include "ops/linear/cpu_plan.h"

#include <gtest/gtest.h>

namespace headrace::cpu_plan_test {
namespace {

constexpr LinearPanelKernels kPanels{.tile_rows = 6,
                                     .row_block = 132,
                                     .rows_from = 17,
                                     .groups = 2,
                                     .share_rows = 120,
                                     .blocks = nullptr};
constexpr LinearFloatKernel kFloats{};
constexpr LinearPanelKernels kTiles{.tile_rows = 16,
                                    .row_block = 256,
                                    .rows_from = 20,
                                    .groups = 2,
                                    .share_rows = 1 << 20,
                                    .blocks = nullptr,
                                    .floats = &kFloats};
constexpr LinearCpuIsa kWithPanels{
    .tile_rows = 8, .quantise_row = nullptr, .blocks = nullptr, .panels = &kPanels};
constexpr LinearCpuIsa kWithTiles{
    .tile_rows = 8, .quantise_row = nullptr, .blocks = nullptr, .panels = &kTiles};
constexpr LinearCpuIsa kWithout{
    .tile_rows = 4, .quantise_row = nullptr, .blocks = nullptr, .panels = nullptr};

struct Case {
  const char* what;
  LinearCpuSize size;
  const LinearCpuIsa* isa;
  int threads;
  LinearCpuPlan plan;
};

constexpr LinearMethod kFlat = LinearMethod::kFlat, kPanel = LinearMethod::kPanels;
constexpr LinearDeal kOne = LinearDeal::kOneThread, kShares = LinearDeal::kShares,
                     kPieces = LinearDeal::kPieces, kRows = LinearDeal::kRowShares;

constexpr Case kCases[] = {
    {"one token reads its share", {1, 3072, 576}, &kWithPanels, 2, {kFlat, kShares, 8, 8}},
    {"a tile of streams too", {8, 3072, 576}, &kWithPanels, 2, {kFlat, kShares, 8, 8}},
    {"more are bound by arithmetic", {9, 3072, 576}, &kWithPanels, 2, {kFlat, kPieces, 8, 16}},
    {"the last flat one", {16, 3072, 576}, &kWithPanels, 2, {kFlat, kPieces, 8, 16}},
    {"the first of panels", {17, 3072, 576}, &kWithPanels, 2, {kPanel, kPieces, 6, 18}},
    {"a prompt", {512, 3072, 576}, &kWithPanels, 2, {kPanel, kRows, 6, 132}},
    {"a block of rows each", {240, 3072, 576}, &kWithPanels, 2, {kPanel, kRows, 6, 120}},
    {"not quite", {239, 3072, 576}, &kWithPanels, 2, {kPanel, kPieces, 6, 120}},
    {"for more threads", {512, 3072, 576}, &kWithPanels, 5, {kPanel, kPieces, 6, 132}},
    {"too large for all to read", {512, 3072, 2048}, &kWithPanels, 2, {kPanel, kPieces, 6, 132}},
    {"tiles of floats", {512, 3072, 576}, &kWithTiles, 2, {kPanel, kPieces, 16, 256, &kFloats}},
    {"blocks are nearly equal", {140, 3072, 576}, &kWithPanels, 2, {kPanel, kPieces, 6, 72}},
    {"too few for tiles", {19, 3072, 576}, &kWithTiles, 2, {kFlat, kPieces, 8, 24}},
    {"staged as floats", {20, 3072, 576}, &kWithTiles, 2, {kPanel, kPieces, 16, 32, &kFloats}},
    {"no panels here", {512, 3072, 576}, &kWithout, 2, {kFlat, kPieces, 4, 128}},
    {"tiny work wakes nobody", {1, 64, 64}, &kWithPanels, 2, {kFlat, kOne, 8, 8}},
    {"nobody to wake", {512, 3072, 576}, &kWithPanels, 1, {kPanel, kOne, 6, 132}},
};

TEST(LinearCpuPlan, IsAFunctionOfSizes) {
  for (const Case& c : kCases) {
    const LinearCpuPlan plan = plan_linear_cpu(c.size, *c.isa, c.threads);
    EXPECT_EQ(plan.method, c.plan.method) << c.what;
    EXPECT_EQ(plan.deal, c.plan.deal) << c.what;
    EXPECT_EQ(plan.tile_rows, c.plan.tile_rows) << c.what;
    EXPECT_EQ(plan.row_block, c.plan.row_block) << c.what;
    EXPECT_EQ(plan.floats, c.plan.floats) << c.what;
  }
}

TEST(LinearCpuPlan, BlocksOfRowsAreWholeTiles) {
  for (const LinearCpuIsa* isa : {&kWithPanels, &kWithTiles, &kWithout}) {
    for (int64_t m = 1; m < 600; ++m) {
      const LinearCpuPlan plan = plan_linear_cpu({m, 576, 576}, *isa, 2);
      ASSERT_GT(plan.row_block, 0);
      ASSERT_EQ(plan.row_block % plan.tile_rows, 0) << m;
    }
  }
}

}  // namespace
}  // namespace headrace::cpu_plan_test
