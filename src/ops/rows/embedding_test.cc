#include "ops/rows/embedding.h"

#include <gtest/gtest.h>

#include <iterator>
#include <vector>

#include "ops/op_fixture.h"
#include "ops/packing/random_matrix.h"
#include "tensor/quantised_row.h"

namespace headrace::embedding_test {
namespace {

TEST(Embedding, GivesTheRowsOfEveryFormat) {
  TestDevice device = TestDevice::cpu(2);
  constexpr int64_t kVocabulary = 11;
  int kernels_run = 0;
  for (const DType dtype : kWeightTypes) {
    Rng rng(1);
    const RandomMatrix table(rng, dtype, kVocabulary, whole_blocks(dtype, 96));
    std::vector<float> expected(static_cast<size_t>(table.k));
    for (const int64_t rows : {1, 2, 40}) {
      std::vector<TokenId> tokens;
      for (int64_t t = 0; t < rows; ++t)
        tokens.push_back(static_cast<TokenId>(rng.below(kVocabulary)));
      for (const auto& kernel : embedding_kernels().all()) {
        SCOPED_TRACE(std::string(kernel.name) + " " + std::string(dtype_name(dtype)));
        TestMatrix out(rows, table.k);
        const EmbeddingArgs args{
            .tokens = tokens, .table = table.view(), .out = out.view(), .scale = 0.5f};
        OpContext context = device.context();
        if (!kernel.supports(context.device.traits(), args)) continue;  // another device's
        ++kernels_run;
        kernel.run(context, args);
        for (int64_t t = 0; t < rows; ++t) {
          dequantise_row(table.view(), tokens[static_cast<size_t>(t)], expected.data());
          for (float& value : expected) value *= 0.5f;
          EXPECT_TRUE(same_bits(&out.at(t, 0), expected.data(), table.k));
        }
        EXPECT_TRUE(out.gaps_untouched());
      }
    }
  }
  EXPECT_GE(kernels_run, 3 * static_cast<int>(std::size(kWeightTypes)));
}

TEST(Embedding, TokensBeyondTheTableMayBeTheFirst) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  Rng rng(1);
  const RandomMatrix table(rng, DType::kF32, 5, 16);
  TestMatrix out(4, 16), expected(4, 16);
  const std::vector<TokenId> tokens = {4, 5, 2, 700}, known = {4, 0, 2, 0};
  EmbeddingArgs args{.tokens = known, .table = table.view(), .out = expected.view()};
  embedding(context, args);
  args.tokens = tokens;
  args.out = out.view();
  args.first_for_others = true;
  embedding(context, args);
  EXPECT_TRUE(same_bits(out, expected));
}

// As a model with tied embeddings has them: in the head alone.
TEST(Embedding, RowsOfAPackedHeadAreThoseOfTheTable) {
  TestDevice device = TestDevice::cpu(2);
  constexpr int64_t kVocabulary = 37;  // no whole groups of 16
  for (const DType dtype : kWeightTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    Rng rng(1);
    const RandomMatrix table(rng, dtype, kVocabulary, whole_blocks(dtype, 96));
    OpContext context = device.context();
    const LinearSource source{.weight = table.view(), .row_order = {}};
    const auto packed =
        LinearWeight::pack(context.device, std::span(&source, 1), LinearCompute::kFast);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    std::vector<TokenId> tokens;
    for (TokenId id = 0; id < kVocabulary; ++id) tokens.push_back(id);
    TestMatrix expected(kVocabulary, table.k), out(kVocabulary, table.k);
    embedding(context,
              {.tokens = tokens, .table = table.view(), .out = expected.view(), .scale = 3.0f});
    embedding(
        context,
        {.tokens = tokens, .table = {}, .out = out.view(), .scale = 3.0f, .packed = &*packed});
    for (int64_t t = 0; t < kVocabulary; ++t) {
      EXPECT_TRUE(same_bits(&out.at(t, 0), &expected.at(t, 0), table.k)) << "row " << t;
    }
    EXPECT_TRUE(out.gaps_untouched());
  }
}

// Of a table and of a packed head alike, behind the scale.
TEST(Embedding, AddsTheRowsOfPositions) {
  TestDevice device = TestDevice::cpu(2);
  constexpr int64_t kVocabulary = 20, kPositions = 9, kColumns = 96;
  Rng rng(4);
  const RandomMatrix table(rng, DType::kBF16, kVocabulary, kColumns);
  const RandomMatrix rows(rng, DType::kF32, kPositions, kColumns);
  OpContext context = device.context();
  const LinearSource source{.weight = table.view(), .row_order = {}};
  const auto packed =
      LinearWeight::pack(context.device, std::span(&source, 1), LinearCompute::kFast);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  const std::vector<TokenId> tokens = {3, 19, 3, 0};
  const std::vector<int32_t> positions = {0, 8, 5, 1};
  TestMatrix plain(4, kColumns), out(4, kColumns), of_packed(4, kColumns);
  EmbeddingArgs args{.tokens = tokens, .table = table.view(), .out = plain.view(), .scale = 0.5f};
  embedding(context, args);
  args.positions = positions;
  args.position_table = rows.view();
  args.out = out.view();
  embedding(context, args);
  args.table = {};
  args.packed = &*packed;
  args.out = of_packed.view();
  embedding(context, args);
  std::vector<float> row(kColumns);
  for (int64_t t = 0; t < 4; ++t) {
    dequantise_row(rows.view(), positions[static_cast<size_t>(t)], row.data());
    for (int64_t i = 0; i < kColumns; ++i) {
      EXPECT_EQ(out.at(t, i), plain.at(t, i) + row[static_cast<size_t>(i)]);
    }
    EXPECT_TRUE(same_bits(&out.at(t, 0), &of_packed.at(t, 0), kColumns));
  }
}

TEST(EmbeddingDeathTest, AnIdOutsideTheTableIsABug) {
  TestDevice device = TestDevice::cpu(1);
  std::vector<float> table(12);
  TestMatrix out(1, 4);
  OpContext context = device.context();
  const std::vector<TokenId> tokens = {3};
  EXPECT_DEATH(
      embedding(context, {tokens,
                          {reinterpret_cast<std::byte*>(table.data()), DType::kF32, Shape{3, 4}},
                          out.view()}),
      "token < args.table.rows");
}

}  // namespace
}  // namespace headrace::embedding_test
