// Attention's CUDA kernels against the CPU reference (double sums) on the same rounded inputs. Runs
// where there is a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "ops/attention/attention_cuda_fixture.h"

namespace headrace::attention_cuda_test {
namespace {

using namespace attention_cuda_fixture;

// Prompts, a chunk in the middle of another, few rows, decode rows.
const std::vector<Part> kMixed = {{37, 37}, {150, 451}, {1, 1},     {1, 530}, {3, 200},
                                  {1, 16},  {1, 17},    {260, 260}, {9, 9},   {1, 2100}};

TEST_F(AttentionCuda, EveryHeadSizeAndGroup) {
  for (const int32_t dim : {64, 80, 96, 128, 256, 512, 48}) {
    for (const Heads& heads : {Heads{4, 4, dim},
                               {9, 3, dim},
                               {8, 2, dim},
                               {14, 2, dim},
                               {8, 1, dim},
                               {12, 1, dim},
                               {16, 1, dim},
                               {20, 1, dim}}) {
      expect_agreement(device(), {.heads = heads, .parts = kMixed});
    }
  }
}

TEST_F(AttentionCuda, EveryType) {
  for (const int32_t dim : {64, 128, 256}) {
    for (const DType dtype : {DType::kF16, DType::kF32}) {
      expect_agreement(device(), {.heads = {8, 2, dim}, .dtype = dtype, .parts = kMixed});
    }
  }
}

TEST_F(AttentionCuda, WindowsCapsAndSinks) {
  for (const int32_t dim : {64, 128, 256, 512}) {
    for (const int32_t window : {1, 5, 100, 128, 300}) {
      expect_agreement(device(), {.heads = {8, 2, dim}, .parts = kMixed, .window = window});
    }
    expect_agreement(device(), {.heads = {8, 2, dim}, .parts = kMixed, .soft_cap = 3.0f});
    expect_agreement(device(), {.heads = {8, 2, dim}, .parts = kMixed, .sinks = true});
    expect_agreement(
        device(),
        {.heads = {8, 2, dim}, .parts = kMixed, .window = 40, .soft_cap = 2.0f, .sinks = true});
  }
}

// A chunk ends within a tile, a page, a step; with the window that the engine keeps of it.
TEST_F(AttentionCuda, Chunks) {
  const std::vector<Part> parts = {{300, 300}, {150, 700}, {1, 65}, {1, 64}, {3, 130},
                                   {1, 2000},  {5, 1026},  {1, 1},  {7, 515}};
  for (const int32_t dim : {48, 64, 80, 96, 128, 256, 512}) {
    for (const int32_t chunk : {1, 12, 64, 100, 512}) {
      expect_agreement(device(),
                       {.heads = {8, 2, dim}, .parts = parts, .window = chunk, .chunk = chunk});
    }
    expect_agreement(
        device(), {.heads = {16, 1, dim}, .parts = parts, .window = 0, .chunk = 40, .sinks = true});
  }
  expect_agreement(
      device(),
      {.heads = {8, 2, 64}, .dtype = DType::kF32, .parts = parts, .window = 100, .chunk = 100});
}

// Rows on both sides of the end of a chunk whose keys are shared out: of some splits a row sees no
// key.
TEST_F(AttentionCuda, ChunksInSplits) {
  for (const int32_t dim : {64, 80, 96, 128, 256, 512}) {
    for (const int32_t sm_count : {1, 40, 1000}) {
      const int32_t chunk = dim == 128 ? 2048 : 1500;
      expect_agreement(device(), {.heads = {4, 2, dim},
                                  .parts = {{1, 4000}, {3, 3002}, {5, 2050}, {1, 1500}},
                                  .window = chunk,
                                  .chunk = chunk,
                                  .sm_count = sm_count});
      expect_agreement(device(), {.heads = {3, 1, dim},
                                  .parts = {{34, 3020}, {70, 2100}},
                                  .window = chunk,
                                  .chunk = chunk,
                                  .sm_count = sm_count,
                                  .split_prompts = true});
    }
  }
}

// Lengths around the edges of pages, steps and tiles.
TEST_F(AttentionCuda, OddLengths) {
  std::vector<Part> decode, prefill;
  for (const int32_t length :
       {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257}) {
    decode.push_back({1, length});
    prefill.push_back({length, length});
  }
  for (const int32_t dim : {64, 128, 256, 512}) {
    expect_agreement(device(), {.heads = {4, 1, dim}, .parts = decode});
    expect_agreement(device(), {.heads = {4, 1, dim}, .parts = prefill});
    expect_agreement(device(), {.heads = {3, 3, dim}, .parts = prefill});
  }
}

// Few multiprocessors: a thread block has many items. Many: every sequence is split.
TEST_F(AttentionCuda, SplitsAndPersistence) {
  const std::vector<Part> parts = {{1, 5000}, {1, 300}, {1, 1}, {2, 3001}, {4, 777}, {1, 4096}};
  for (const int32_t sm_count : {1, 7, 132, 1000}) {
    for (const int32_t dim : {64, 128, 256, 512}) {
      expect_agreement(device(), {.heads = {8, 2, dim}, .parts = parts, .sm_count = sm_count});
      expect_agreement(device(), {.heads = {16, 1, dim},
                                  .parts = parts,
                                  .window = 1500,
                                  .sinks = true,
                                  .sm_count = sm_count});
    }
  }
}

// Single rows, of which a thread block has one, two, three or many items.
TEST_F(AttentionCuda, ItemsOfAThreadBlock) {
  std::vector<Part> parts;
  for (int32_t i = 0; i < 40; ++i) parts.push_back({1, 100 + i * 37 % 300});
  for (const int32_t sm_count : {1, 3, 14, 20, 21, 40, 100}) {
    for (const int32_t dim : {64, 128, 512}) {
      expect_agreement(device(), {.heads = {8, 2, dim}, .parts = parts, .sm_count = sm_count});
    }
  }
  parts.push_back({1, 3000});
  expect_agreement(device(), {.heads = {8, 2, 128}, .parts = parts, .sm_count = 20});
}

// The largest score rises by less and by more than what the weights' origin follows.
TEST_F(AttentionCuda, ScoresFarApart) {
  for (const int32_t dim : {64, 80, 128, 256, 512}) {
    for (const float scale : {3.0f, 10.0f, 30.0f}) {
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        expect_agreement(device(), {.heads = {8, 2, dim},
                                    .dtype = dtype,
                                    .parts = {{1, 900}, {1, 40}, {3, 500}, {1, 2100}},
                                    .query_scale = scale});
      }
      expect_agreement(device(), {.heads = {16, 1, dim},
                                  .parts = {{1, 900}, {1, 40}},
                                  .sinks = true,
                                  .query_scale = scale});
    }
  }
  expect_agreement(device(), {.heads = {8, 2, 128},
                              .parts = {{1, 900}, {1, 40}, {1, 333}, {1, 16}, {1, 2100}},
                              .query_scale = 10.0f});
}

// Prompts' tiles shared out by keys: a chunk behind a long context, also beside decode rows.
TEST_F(AttentionCuda, SplitPrompts) {
  const std::vector<Part> chunk = {{44, 3000}}, two = {{130, 2200}, {70, 900}},
                          mixed = {{40, 4100}, {1, 700}, {2, 3001}};
  for (const int32_t dim : {64, 80, 96, 128, 256, 512}) {
    for (const auto& parts : {chunk, two, mixed}) {
      expect_agreement(device(), {.heads = {8, 2, dim}, .parts = parts, .split_prompts = true});
      expect_agreement(device(), {.heads = {7, 1, dim},
                                  .parts = parts,
                                  .window = 1500,
                                  .sinks = true,
                                  .sm_count = 40,
                                  .split_prompts = true});
    }
    expect_agreement(device(), {.heads = {9, 3, dim},
                                .dtype = DType::kF16,
                                .parts = chunk,
                                .soft_cap = 3.0f,
                                .sm_count = 1000,
                                .split_prompts = true});
  }
}

TEST_F(AttentionCuda, RecordedSingleRowsMayGetLong) {
  const std::vector<Part> parts = {{1, 30}, {1, 700}, {1, 2100}, {1, 1}};
  for (const int32_t dim : {64, 80, 96, 128, 256, 512}) {
    for (const Heads& heads : {Heads{8, 2, dim}, {16, 1, dim}, {20, 1, dim}}) {
      for (const std::optional<KvFormat> kept : {std::optional<KvFormat>(),
                                                 {KvFormat::kFp8},
                                                 {KvFormat::kInt8Head},
                                                 {KvFormat::kInt4Head}}) {
        expect_recorded_rows_may_get_long(
            device(), {.heads = heads, .parts = parts, .split_prompts = true, .kept = kept});
      }
    }
  }
}

TEST_F(AttentionCuda, LongPrompt) {
  expect_agreement(device(), {.heads = {4, 1, 128}, .parts = {{2500, 2500}, {600, 2100}}});
  expect_agreement(device(), {.heads = {2, 1, 64}, .parts = {{2500, 2500}}, .window = 777});
  expect_agreement(device(), {.heads = {2, 1, 256}, .parts = {{2500, 2500}}, .soft_cap = 30.0f});
  expect_agreement(device(), {.heads = {8, 1, 512}, .parts = {{1500, 1500}, {300, 2100}}});
}

TEST_F(AttentionCuda, BlocksBeyondTwoToThe31Elements) {
  // 8320 bytes a block x 4000: 300 blocks lie over 10 GB.
  const CudaCase c{
      .heads = {4, 2, 64}, .parts = {{1, 1500}, {200, 1500}, {3, 1700}}, .stride_factor = 4000};
  Problem problem(c);
  ASSERT_GT(problem.block_count() * problem.kv().block_stride * c.stride_factor / 2,
            int64_t{1} << 31);
  expect_agreement(device(), c);
}

TEST_F(AttentionCuda, BatchInvariantRowsHaveTheSameBits) {
  for (const int32_t dim : {64, 96, 128, 256, 512}) {
    for (const int32_t window : {0, 70, 100, 200}) {
      CudaCase c{.heads = {6, 2, dim}, .parts = {{330, 330}, {150, 150}}, .window = window};
      if (window == 100) c.chunk = window;
      if (window > 0 && c.chunk == 0)
        c.kept = window == 70 ? KvFormat::kInt4Head : KvFormat::kInt8Head;
      expect_rows_have_the_same_bits(device(), c);
    }
  }
}

TEST_F(AttentionCuda, RowsOfPaddingAreZero) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const int32_t dim : {48, 64, 80, 96, 128, 256, 512}) {
      for (const size_t there : {1, 3, 5}) {
        expect_padding_is_zero(
            device(),
            {.heads = {6, 2, dim},
             .dtype = dtype,
             .parts = {{1, 700}, {1, 33}, {1, 2100}, {40, 200}, {1, 1}, {1, 64}, {9, 9}},
             .kept = there == 1   ? std::nullopt
                     : there == 3 ? std::optional(KvFormat::kFp8)
                                  : std::optional(KvFormat::kInt8Head)},
            there);
      }
    }
  }
}

TEST_F(AttentionCuda, ANanStaysInItsSequence) {
  for (const std::optional<KvFormat> kept : {std::optional<KvFormat>(),
                                             {KvFormat::kFp8},
                                             {KvFormat::kInt8Head},
                                             {KvFormat::kInt4Head}}) {
    expect_a_nan_stays_in_its_sequence(
        device(),
        {.heads = {8, 2, 128}, .parts = {{40, 40}, {1, 700}, {150, 150}, {1, 700}}, .kept = kept});
  }
}

}  // namespace
}  // namespace headrace::attention_cuda_test
