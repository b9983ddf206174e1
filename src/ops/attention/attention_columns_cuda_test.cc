// Attention's CUDA kernels over pages of fewer bits beside pages of 16 bits that hold the same.
#include <gtest/gtest.h>

#include <vector>

#include "ops/attention/attention_cuda_fixture.h"

namespace headrace::attention_columns_cuda_test {
namespace {

using namespace attention_cuda_fixture;

class AttentionColumnsCuda : public AttentionCuda {};

// What is kept of fewer bits is unpacked to the nearest numbers of 16 bits: where those are kept,
// prompts have the same bits, and single rows in prefill tiles; decode tiles, which multiply in
// F16, are near.
TEST_F(AttentionColumnsCuda, ColumnsHaveTheBitsOfWhatTheyStandFor) {
  for (const KvFormat format : kColumnFormats) {
    for (const int32_t dim : {64, 80, 96, 128, 256}) {
      if (!has_fast_pages(format, dim)) continue;
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        std::vector<std::vector<float>> results[2];
        for (const bool in_columns : {false, true}) {
          CudaCase c{
              .heads = {6, 2, dim}, .dtype = dtype, .parts = {{330, 330}, {1, 700}, {9, 150}}};
          c.window = dim == 96 ? 200 : 0;
          if (in_columns) {
            c.kept = format;
          } else {
            c.held = format;
          }
          Problem problem(c);
          OnDevice on_device(device(), problem);
          for (const auto& kernel : attention_cuda_kernels()) {
            if (!on_device.supports(kernel) || kernel.is_fallback) continue;
            auto& of = results[in_columns ? 1 : 0];
            of.push_back(on_device.run_invariant(kernel, {problem.sequences()}));
            of.push_back(on_device.run(kernel));
          }
        }
        ASSERT_EQ(results[0].size(), 2u);
        ASSERT_EQ(results[1].size(), 2u);
        EXPECT_TRUE(results[0][0] == results[1][0]) << dim;
        EXPECT_LT(relative_error(results[1][1], results[0][1]), bound_of(dtype)) << dim;
      }
    }
  }
}

// Scales far above and below those of unit numbers: weights are multiplied by them in F16.
TEST_F(AttentionColumnsCuda, ScalesFarFromOne) {
  for (const float value_scale : {0.02f, 200.0f}) {
    for (const KvFormat format : kColumnFormats) {
      if (format == KvFormat::kFp8) continue;
      expect_agreement_of(device(), {.heads = {8, 2, 128},
                                     .parts = {{1, 900}, {1, 40}, {3, 500}, {1, 2100}},
                                     .query_scale = 1.0f / value_scale,
                                     .kept = format,
                                     .number_scale = value_scale});
    }
  }
}

}  // namespace
}  // namespace headrace::attention_columns_cuda_test
