// Attention's CUDA kernels with ALiBi, and of values narrower than keys, against the CPU reference.
// Runs where there is a GPU.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "ops/attention/attention_cuda_fixture.h"

namespace headrace::attention_heads_cuda_test {
namespace {

using namespace attention_cuda_fixture;

// Prompts, a chunk in the middle of another, few rows (of a sequence that verifies proposals, too),
// decode rows.
const std::vector<Part> kSomeOfAll = {{37, 37}, {150, 451}, {1, 1},     {1, 530}, {3, 200},
                                      {1, 16},  {1, 17},    {260, 260}, {9, 9},   {1, 2100}};
const std::vector<Part> kLong = {{1, 5000}, {1, 300}, {1, 1}, {2, 3001}, {4, 777}, {1, 4096}};
const std::vector<Part> kTwoPrompts = {{330, 330}, {150, 150}};

std::vector<Part> parts_of_odd_lengths(bool prompts) {
  std::vector<Part> parts;
  for (const int32_t length :
       {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257}) {
    parts.push_back({prompts ? length : 1, length});
  }
  return parts;
}

class AttentionAlibiCuda : public AttentionCuda {};

TEST_F(AttentionAlibiCuda, EveryHeadSizeAndGroup) {
  for (const int32_t dim : {64, 80, 96, 128, 48, 112, 256}) {
    for (const Heads& heads : {Heads{4, 4, dim}, {9, 3, dim}, {8, 1, dim}, {12, 1, dim}}) {
      expect_agreement(device(), {.heads = heads, .parts = kSomeOfAll, .alibi = true});
    }
  }
}

TEST_F(AttentionAlibiCuda, EveryType) {
  for (const int32_t dim : {64, 80, 96, 128}) {
    for (const DType dtype : {DType::kF16, DType::kF32}) {
      expect_agreement(device(),
                       {.heads = {8, 8, dim}, .dtype = dtype, .parts = kSomeOfAll, .alibi = true});
    }
  }
}

TEST_F(AttentionAlibiCuda, WindowsChunksCapsAndSinks) {
  for (const int32_t dim : {64, 80, 96, 128}) {
    for (const int32_t window : {1, 5, 100, 128, 300}) {
      expect_agreement(
          device(), {.heads = {8, 2, dim}, .parts = kSomeOfAll, .window = window, .alibi = true});
    }
    expect_agreement(
        device(),
        {.heads = {8, 2, dim}, .parts = kSomeOfAll, .window = 100, .chunk = 100, .alibi = true});
    expect_agreement(device(),
                     {.heads = {8, 2, dim}, .parts = kSomeOfAll, .soft_cap = 3.0f, .alibi = true});
    expect_agreement(
        device(),
        {.heads = {8, 8, dim}, .parts = kSomeOfAll, .window = 40, .sinks = true, .alibi = true});
  }
}

TEST_F(AttentionAlibiCuda, OddLengths) {
  for (const int32_t dim : {64, 80, 96, 128}) {
    for (const bool prompts : {false, true}) {
      expect_agreement(
          device(), {.heads = {4, 4, dim}, .parts = parts_of_odd_lengths(prompts), .alibi = true});
    }
  }
}

// Keys that are shared out: each split takes distances from the rows' own positions.
TEST_F(AttentionAlibiCuda, SplitsAndPersistence) {
  const std::vector<Part> behind = {{44, 3000}}, beside = {{40, 4100}, {1, 700}, {2, 3001}};
  for (const int32_t dim : {64, 80, 96, 128}) {
    for (const int32_t sm_count : {1, 7, 132, 1000}) {
      expect_agreement(device(),
                       {.heads = {8, 8, dim}, .parts = kLong, .alibi = true, .sm_count = sm_count});
      for (const auto& parts : {behind, beside}) {
        expect_agreement(device(), {.heads = {4, 2, dim},
                                    .parts = parts,
                                    .window = sm_count == 132 ? 1500 : 0,
                                    .alibi = true,
                                    .sm_count = sm_count,
                                    .split_prompts = true});
      }
    }
  }
}

// Of few rows whatever the cache is kept as: prompts unpack it to 16 bits, which such scores show.
TEST_F(AttentionAlibiCuda, ScoresFarApart) {
  for (const int32_t dim : {64, 80, 96, 128}) {
    for (const float scale : {3.0f, 30.0f}) {
      CudaCase c{.heads = {8, 8, dim},
                 .parts = {{1, 900}, {1, 40}, {3, 500}, {1, 2100}},
                 .alibi = true,
                 .query_scale = scale};
      expect_agreement(device(), c);
      c.parts.push_back({70, 600});
      expect_agreement_of(device(), c);
    }
  }
}

TEST_F(AttentionAlibiCuda, RowsAreTheirOwn) {
  for (const int32_t dim : {64, 80, 96, 128}) {
    for (const std::optional<KvFormat> kept : {std::optional<KvFormat>(), {KvFormat::kInt8Head}}) {
      for (const int32_t window : {0, 70}) {
        expect_rows_have_the_same_bits(device(), {.heads = {6, 6, dim},
                                                  .parts = kTwoPrompts,
                                                  .window = window,
                                                  .alibi = true,
                                                  .kept = kept});
      }
      expect_recorded_rows_may_get_long(device(), {.heads = {8, 8, dim},
                                                   .parts = {{1, 30}, {1, 700}, {1, 2100}, {1, 1}},
                                                   .alibi = true,
                                                   .split_prompts = true,
                                                   .kept = kept});
      expect_padding_is_zero(device(),
                             {.heads = {6, 6, dim},
                              .parts = {{1, 700}, {1, 33}, {40, 200}, {1, 1}, {9, 9}},
                              .alibi = true,
                              .kept = kept},
                             2);
      expect_a_nan_stays_in_its_sequence(device(),
                                         {.heads = {8, 8, dim},
                                          .parts = {{40, 40}, {1, 700}, {150, 150}, {1, 700}},
                                          .alibi = true,
                                          .kept = kept});
    }
  }
}

class AttentionNarrowValuesCuda : public AttentionCuda {};

// MiMo V2's sizes by fast kernels; others by the reference, wider values, too.
TEST_F(AttentionNarrowValuesCuda, EveryHeadSizeAndGroup) {
  for (const Heads& heads : {Heads{4, 4, 192, 128},
                             {9, 3, 192, 128},
                             {14, 2, 192, 128},
                             {8, 1, 192, 128},
                             {12, 1, 192, 128},
                             {16, 1, 192, 128},
                             {20, 1, 192, 128},
                             {128, 2, 192, 128},
                             {4, 2, 48, 32},
                             {4, 2, 128, 64},
                             {4, 2, 64, 192}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      expect_agreement_of(device(), {.heads = heads, .dtype = dtype, .parts = kSomeOfAll});
    }
  }
  expect_agreement_of(device(), {.heads = {4, 2, 192, 128}, .parts = kSomeOfAll, .alibi = true});
}

TEST_F(AttentionNarrowValuesCuda, WindowsChunksCapsAndSinks) {
  for (const Heads& heads : {Heads{8, 1, 192, 128}, {32, 2, 192, 128}}) {
    for (const int32_t window : {1, 5, 100, 128, 300}) {
      for (const bool sinks : {false, true}) {
        expect_agreement_of(
            device(), {.heads = heads, .parts = kSomeOfAll, .window = window, .sinks = sinks});
      }
    }
    expect_agreement_of(device(),
                        {.heads = heads, .parts = kSomeOfAll, .window = 100, .chunk = 100});
    expect_agreement_of(device(), {.heads = heads, .parts = kSomeOfAll, .soft_cap = 3.0f});
  }
}

TEST_F(AttentionNarrowValuesCuda, OddLengths) {
  for (const Heads& heads : {Heads{4, 1, 192, 128}, {3, 3, 192, 128}, {16, 1, 192, 128}}) {
    for (const bool prompts : {false, true}) {
      expect_agreement_of(device(), {.heads = heads, .parts = parts_of_odd_lengths(prompts)});
    }
  }
}

TEST_F(AttentionNarrowValuesCuda, SplitsAndPersistence) {
  const std::vector<Part> behind = {{44, 3000}}, beside = {{40, 4100}, {1, 700}, {2, 3001}};
  for (const Heads& heads : {Heads{8, 2, 192, 128}, {16, 1, 192, 128}, {3, 3, 192, 128}}) {
    for (const int32_t sm_count : {1, 7, 132, 1000}) {
      for (const int32_t window : {0, 1500}) {
        expect_agreement_of(device(), {.heads = heads,
                                       .parts = kLong,
                                       .window = window,
                                       .sinks = window > 0,
                                       .sm_count = sm_count});
        for (const auto& parts : {behind, beside}) {
          expect_agreement_of(device(), {.heads = heads,
                                         .parts = parts,
                                         .window = window,
                                         .sinks = window > 0,
                                         .sm_count = sm_count,
                                         .split_prompts = true});
        }
      }
    }
  }
}

// Single rows, of which a thread block has one, two, three or many items; prompts of many tiles.
TEST_F(AttentionNarrowValuesCuda, ItemsOfAThreadBlock) {
  std::vector<Part> parts;
  for (int32_t i = 0; i < 40; ++i) parts.push_back({1, 100 + i * 37 % 300});
  for (const int32_t sm_count : {1, 3, 14, 20, 21, 40, 100}) {
    for (const Heads& heads : {Heads{8, 2, 192, 128}, {16, 1, 192, 128}}) {
      expect_agreement_of(device(), {.heads = heads, .parts = parts, .sm_count = sm_count});
    }
  }
  expect_agreement_of(device(), {.heads = {4, 1, 192, 128}, .parts = {{2500, 2500}, {600, 2100}}});
}

TEST_F(AttentionNarrowValuesCuda, ScoresFarApart) {
  for (const float scale : {3.0f, 30.0f}) {
    for (const Heads& heads : {Heads{8, 2, 192, 128}, {16, 1, 192, 128}}) {
      expect_agreement_of(device(), {.heads = heads,
                                     .parts = {{1, 900}, {1, 40}, {3, 500}, {70, 600}, {1, 2100}},
                                     .sinks = true,
                                     .query_scale = scale});
    }
  }
}

TEST_F(AttentionNarrowValuesCuda, RowsAreTheirOwn) {
  for (const Heads& heads : {Heads{6, 2, 192, 128}, {16, 1, 192, 128}, {20, 1, 192, 128}}) {
    for (const int32_t window : {0, 70, 128}) {
      expect_rows_have_the_same_bits(
          device(),
          {.heads = heads, .parts = kTwoPrompts, .window = window, .sinks = window == 128});
    }
    expect_recorded_rows_may_get_long(
        device(),
        {.heads = heads, .parts = {{1, 30}, {1, 700}, {1, 2100}, {1, 1}}, .split_prompts = true});
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      expect_padding_is_zero(
          device(),
          {.heads = heads, .dtype = dtype, .parts = {{1, 700}, {1, 33}, {40, 200}, {1, 1}, {9, 9}}},
          2);
    }
    expect_a_nan_stays_in_its_sequence(
        device(), {.heads = heads, .parts = {{40, 40}, {1, 700}, {150, 150}, {1, 700}}});
  }
}

TEST_F(AttentionNarrowValuesCuda, BlocksBeyondTwoToThe31Elements) {
  // 20,544 bytes a block x 1,600: 300 blocks lie over 9 GB.
  const CudaCase c{.heads = {4, 2, 192, 128},
                   .parts = {{1, 1500}, {200, 1500}, {3, 1700}},
                   .stride_factor = 1600};
  Problem problem(c);
  ASSERT_GT(problem.block_count() * problem.kv().block_stride * c.stride_factor / 2,
            int64_t{1} << 31);
  expect_agreement_of(device(), c);
}

}  // namespace
}  // namespace headrace::attention_heads_cuda_test
