#include "ops/rows/cut_gates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/op_fixture.h"

namespace headrace::cut_gates_test {
namespace {

TEST(CutGates, WhatLiesAboveTheRowsOwnLineStays) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t rows : {0, 1, 3, 20}) {
    for (const float cutoff : {-0.5f, 0.0f, 1.6f}) {
      constexpr int64_t kColumns = 200;
      Rng rng(static_cast<uint64_t>(rows));
      const TestMatrix before(rng, rows, kColumns, 2.0f);
      TestMatrix x = before;
      cut_gates(context, {.x = x.view(), .cutoff = cutoff});
      for (int64_t t = 0; t < rows; ++t) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < kColumns; ++i) sum += before.at(t, i);
        const double mean = sum / kColumns;
        for (int64_t i = 0; i < kColumns; ++i) squares += std::pow(before.at(t, i) - mean, 2);
        const double least = mean + std::sqrt(squares / kColumns) * double{cutoff};
        for (int64_t i = 0; i < kColumns; ++i) {
          ASSERT_NEAR(x.at(t, i), std::max(before.at(t, i) - least, 0.0), 1e-6) << t << " " << i;
        }
      }
      EXPECT_TRUE(x.gaps_untouched());
    }
  }
}

}  // namespace
}  // namespace headrace::cut_gates_test
