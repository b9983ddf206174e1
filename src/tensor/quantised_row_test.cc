#include "tensor/quantised_row.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/rng.h"

namespace headrace::quantised_row_test {
namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Json read_json(const char* path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto json = parse_json(text.str());
  CHECK(json.ok());
  return std::move(json.value());
}

std::vector<float> from_bits(const Json& list) {
  std::vector<float> values;
  for (const Json& bits : list.as_array()) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits.as_int())));
  }
  return values;
}

struct TypeCase {
  const char* name;
  DType dtype;
};

class BlockFixture : public testing::TestWithParam<TypeCase> {
 protected:
  // Made by make_block_fixture.py from the gguf package.
  Json fixture(const char* part) {
    const Json json = read_json("tests/data/weights/block_fixture.json");
    return *json.find(GetParam().name)->find(part);
  }
};

TEST_P(BlockFixture, DequantisesToTheSameBits) {
  const Json part = fixture("dequantise");
  const auto packed = from_hex(part.find("packed")->as_string());
  const auto expected = from_bits(*part.find("floats"));
  std::vector<float> values(expected.size());
  dequantise_row(GetParam().dtype, packed, values);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[i])) << i;
  }
}

TEST_P(BlockFixture, QuantisesToTheSameBytes) {
  const Json part = fixture("quantise");
  const auto floats = from_bits(*part.find("floats"));
  const auto expected = from_hex(part.find("packed")->as_string());
  std::vector<std::byte> packed(expected.size());
  quantise_row(GetParam().dtype, floats, packed);
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(packed[i], expected[i]) << "byte " << i;
}

INSTANTIATE_TEST_SUITE_P(Types, BlockFixture,
                         testing::Values(TypeCase{"Q8_0", DType::kQ8_0},
                                         TypeCase{"Q4_0", DType::kQ4_0},
                                         TypeCase{"Q4_1", DType::kQ4_1},
                                         TypeCase{"F16", DType::kF16},
                                         TypeCase{"BF16", DType::kBF16}),
                         [](const auto& info) { return std::string(info.param.name); });

// FNV-1a of the values' bits, any NaN taken as 7fc00000, as make_block_fixture.py has it.
std::string hash_of(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : values) {
    uint32_t bits = std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i, bits >>= 8) hash = (hash ^ (bits & 255)) * 0x100000001b3u;
  }
  return fmt::format("{:016x}", hash);
}

class ReadOnlyBlockFixture : public testing::TestWithParam<DType> {};

TEST_P(ReadOnlyBlockFixture, DequantisesToTheSameBits) {
  const DType dtype = GetParam();
  const Json fixture = read_json("tests/data/weights/read_only_block_fixture.json");
  const auto& blocks = fixture.find(dtype_name(dtype))->as_object();
  ASSERT_GE(blocks.size(), 20u);
  for (const auto& [block, hash] : blocks) {
    std::vector<float> values(static_cast<size_t>(dtype_info(dtype).block_elements));
    dequantise_row(dtype, from_hex(block), values);
    EXPECT_EQ(hash_of(values), hash.as_string()) << block;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ReadOnlyBlockFixture,
                         testing::Values(DType::kQ5_0, DType::kQ5_1, DType::kIQ4_NL, DType::kQ2_K,
                                         DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
                                         DType::kIQ4_XS),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST(Dequantise, PlainTypes) {
  const int8_t i8[] = {-128, 127};
  const uint8_t u8[] = {0, 255};
  const int32_t i32[] = {-5, 1 << 20};
  const float f32[] = {-0.0f, std::numeric_limits<float>::infinity()};
  std::vector<float> out(2);
  dequantise_row(DType::kI8, std::as_bytes(std::span(i8)), out);
  EXPECT_EQ(out, (std::vector<float>{-128, 127}));
  dequantise_row(DType::kU8, std::as_bytes(std::span(u8)), out);
  EXPECT_EQ(out, (std::vector<float>{0, 255}));
  dequantise_row(DType::kI32, std::as_bytes(std::span(i32)), out);
  EXPECT_EQ(out, (std::vector<float>{-5, 1 << 20}));
  dequantise_row(DType::kF32, std::as_bytes(std::span(f32)), out);
  EXPECT_TRUE(std::signbit(out[0]));
  EXPECT_EQ(out[1], std::numeric_limits<float>::infinity());
  std::vector<std::byte> packed(8);
  quantise_row(DType::kF32, f32, packed);
  EXPECT_EQ(std::memcmp(packed.data(), f32, 8), 0);
}

TEST(Dequantise, RoundTripStaysWithinHalfAStep) {
  std::vector<float> row(64);
  for (size_t i = 0; i < row.size(); ++i) row[i] = std::sin(static_cast<float>(i)) * 0.05f;
  const std::pair<DType, float> bounds[] = {{DType::kQ8_0, 0.05f / 127},
                                            {DType::kQ4_0, 0.05f / 7},
                                            {DType::kQ4_1, 0.1f / 15},
                                            {DType::kBF16, 0.05f / 256}};
  for (const auto& [dtype, bound] : bounds) {
    std::vector<std::byte> packed(static_cast<size_t>(*row_bytes(dtype, 64)));
    std::vector<float> back(64);
    quantise_row(dtype, row, packed);
    dequantise_row(dtype, packed, back);
    for (size_t i = 0; i < row.size(); ++i)
      EXPECT_NEAR(back[i], row[i], bound) << dtype_name(dtype) << " " << i;
  }
}

// Root of the mean squared error of quantising `row`.
double rms_error(DType dtype, const std::vector<float>& row) {
  std::vector<std::byte> packed(static_cast<size_t>(*row_bytes(dtype, std::ssize(row))));
  std::vector<float> back(row.size());
  quantise_row(dtype, row, packed);
  dequantise_row(dtype, packed, back);
  double squares = 0;
  for (size_t i = 0; i < row.size(); ++i) squares += std::pow(double{back[i]} - row[i], 2);
  return std::sqrt(squares / static_cast<double>(row.size()));
}

// Sums of uniforms, sigma 1: near enough to what weights are.
std::vector<float> bell_shaped(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> row(count);
  for (float& value : row) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform01(rng.next());
    value = static_cast<float>(sum);
  }
  return row;
}

TEST(Quantise, Q4KIsAsGoodAsFiveBitsOfQ41) {
  const std::vector<float> row = bell_shaped(256 * 64, 5);
  const double error = rms_error(DType::kQ4_K, row);
  EXPECT_LT(error, 1.02 * rms_error(DType::kQ4_1, row));
  EXPECT_LT(error, 0.95 * rms_error(DType::kQ4_0, row));
  EXPECT_GT(error, 0.02);  // 4 bits are 4 bits
}

TEST(Quantise, Q4KOfPartsThatDifferByMagnitudes) {
  std::vector<float> row = bell_shaped(256, 6);
  for (size_t i = 0; i < row.size(); ++i) row[i] *= i / 32 % 2 == 0 ? 1.0f : 0.05f;
  std::vector<std::byte> packed(144);
  std::vector<float> back(256);
  quantise_row(DType::kQ4_K, row, packed);
  dequantise_row(DType::kQ4_K, packed, back);
  for (size_t i = 0; i < row.size(); ++i) {
    EXPECT_NEAR(back[i], row[i], i / 32 % 2 == 0 ? 0.35 : 0.06) << i;
  }
}

TEST(Quantise, Q4KOfEqualValues) {
  for (const float value : {0.0f, 0.5f, -0.5f}) {
    EXPECT_NEAR(rms_error(DType::kQ4_K, std::vector<float>(512, value)), 0, 1e-3) << value;
  }
}

TEST(DequantiseDeathTest, SizesMustAgree) {
  std::vector<std::byte> packed(33);
  std::vector<float> out(32);
  EXPECT_DEATH(dequantise_row(DType::kQ8_0, packed, out), "CHECK|row_bytes|bytes");
}

}  // namespace
}  // namespace headrace::quantised_row_test
