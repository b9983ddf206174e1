#include "ops/embedding.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/op_test_support.h"
#include "tensor/half.h"

namespace headrace {
namespace {

void put_u16(std::vector<std::byte>& bytes, uint16_t value) {
  bytes.push_back(static_cast<std::byte>(value & 0xff));
  bytes.push_back(static_cast<std::byte>(value >> 8));
}

// A table of random values in its own format, and the floats they stand for.
struct Table {
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

void add_plain(Rng& rng, DType dtype, Table& table) {
  const float value = random_normal(rng);
  if (dtype == DType::kF32) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    table.bytes.insert(table.bytes.end(), raw, raw + 4);
    table.values.push_back(value);
  } else if (dtype == DType::kF16) {
    put_u16(table.bytes, float_to_half(value));
    table.values.push_back(half_to_float(float_to_half(value)));
  } else {
    put_u16(table.bytes, float_to_bfloat16(value));
    table.values.push_back(bfloat16_to_float(float_to_bfloat16(value)));
  }
}

void add_block(Rng& rng, DType dtype, Table& table) {
  const float d = half_to_float(float_to_half(random_normal(rng, 0.1f)));
  const float m = half_to_float(float_to_half(random_normal(rng)));
  put_u16(table.bytes, float_to_half(d));
  if (dtype == DType::kQ4_1) put_u16(table.bytes, float_to_half(m));
  int q[32];
  for (int& x : q) x = static_cast<int>(rng.below(dtype == DType::kQ8_0 ? 256 : 16));
  for (int i = 0; i < (dtype == DType::kQ8_0 ? 32 : 16); ++i) {
    table.bytes.push_back(
        static_cast<std::byte>(dtype == DType::kQ8_0 ? q[i] : q[i] | q[i + 16] << 4));
  }
  for (const int x : q) {
    if (dtype == DType::kQ8_0)
      table.values.push_back(d * static_cast<float>(static_cast<int8_t>(x)));
    if (dtype == DType::kQ4_0) table.values.push_back(d * static_cast<float>(x - 8));
    if (dtype == DType::kQ4_1) table.values.push_back(d * static_cast<float>(x) + m);
  }
}

Table random_table(Rng& rng, DType dtype, int64_t elements) {
  Table table;
  while (static_cast<int64_t>(table.values.size()) < elements) {
    is_quantised(dtype) ? add_block(rng, dtype, table) : add_plain(rng, dtype, table);
  }
  return table;
}

TEST(Embedding, GivesTheRowsOfEveryFormat) {
  TestDevice device = TestDevice::cpu(2);
  constexpr int64_t kVocabulary = 11, kColumns = 96;
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    Rng rng(1);
    const Table table = random_table(rng, dtype, kVocabulary * kColumns);
    for (const int64_t rows : {1, 2, 40}) {
      std::vector<TokenId> tokens;
      for (int64_t t = 0; t < rows; ++t)
        tokens.push_back(static_cast<TokenId>(rng.below(kVocabulary)));
      for (const auto& kernel : embedding_kernels().all()) {
        SCOPED_TRACE(std::string(kernel.name) + " " + std::string(dtype_name(dtype)));
        TestMatrix out(rows, kColumns);
        OpContext context = device.context();
        const EmbeddingArgs args{.tokens = tokens,
                                 .table = {table.bytes.data(), dtype, Shape{kVocabulary, kColumns}},
                                 .out = out.view()};
        if (!kernel.supports(device.device().traits(), args)) continue;
        kernel.run(context, args);
        for (int64_t t = 0; t < rows; ++t) {
          EXPECT_TRUE(same_bits(
              &out.at(t, 0),
              &table.values[static_cast<size_t>(tokens[static_cast<size_t>(t)] * kColumns)],
              kColumns));
        }
        EXPECT_TRUE(out.gaps_untouched());
      }
    }
  }
}

TEST(Embedding, Scales) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  const std::vector<float> table = {1, -2, 3, 0.5f, 0, 7};
  const std::vector<TokenId> tokens = {1, 0};
  TestMatrix out(2, 3);
  embedding(context,
            {.tokens = tokens,
             .table = {reinterpret_cast<const std::byte*>(table.data()), DType::kF32, Shape{2, 3}},
             .out = out.view(),
             .scale = 1.5f});
  EXPECT_EQ(out.at(0, 0), 0.75f);
  EXPECT_EQ(out.at(0, 2), 10.5f);
  EXPECT_EQ(out.at(1, 1), -3.0f);
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
}  // namespace headrace
