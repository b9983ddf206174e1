// Matrices of experts as gpt-oss's files have them, against the formula, in both formats.
#include "weights/hub_experts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "tensor/quantised_row.h"
#include "weights/gguf_fixture.h"
#include "weights/mxfp4.h"
#include "weights/safetensors_fixture.h"
#include "weights/safetensors_source.h"

namespace headrace::hub_experts_test {
namespace {

constexpr int64_t kExperts = 3, kRows = 6, kColumns = 64, kBlocks = kColumns / kMxfp4Columns;

constexpr auto kNames = std::to_array<HfTensorName>({
    {"gate_up_blocks", "gate.weight", 0, "up.weight", HfForm::kMxfp4},
    {"gate_up_scales", ""},
    {"down", "down.weight", 0, "", HfForm::kTurned},
});

double e2m1(int bits) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (bits & 8) != 0 ? -kMagnitudes[bits & 7] : kMagnitudes[bits & 7];
}

// Numbers and scales of `rows` rows of each expert.
struct Made {
  std::vector<int> bits;    // [experts, rows, columns]
  std::vector<int> scales;  // [experts, rows, blocks]
  int64_t rows;

  Made(int64_t of_expert, int low, int high) : rows(of_expert) {
    Rng rng(7);
    for (int64_t i = 0; i < kExperts * rows * kColumns; ++i) {
      bits.push_back(static_cast<int>(rng.uniform() * 16));
    }
    for (int64_t i = 0; i < kExperts * rows * kBlocks; ++i) {
      scales.push_back(low + static_cast<int>(rng.uniform() * (high - low)));
    }
  }
  double value(int64_t expert, int64_t row, int64_t column) const {
    const int64_t of = expert * rows + row;
    const auto block = static_cast<size_t>(of * kBlocks + column / kMxfp4Columns);
    return std::ldexp(e2m1(bits[static_cast<size_t>(of * kColumns + column)]), scales[block] - 127);
  }
  int number(int64_t block, int64_t column) const {
    return bits[static_cast<size_t>(block * kMxfp4Columns + column)];
  }
};

std::vector<float> floats_of(const RowReader& matrix, int64_t row, int64_t first, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(*row_bytes(matrix.dtype(), count)));
  matrix.read({&row, 1}, first, count, bytes.data());
  std::vector<float> values(static_cast<size_t>(count));
  dequantise_row(matrix.dtype(), bytes, values);
  return values;
}

void expect_rows(const WeightSource& source, const Made& made, DType dtype) {
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    for (const int64_t half : {0, 1}) {
      const auto rows = source.rows(half == 0 ? "gate.weight" : "up.weight", expert);
      ASSERT_TRUE(rows.ok()) << rows.status().message();
      ASSERT_NE(*rows, nullptr);
      EXPECT_EQ((*rows)->dtype(), dtype);
      ASSERT_EQ((*rows)->shape(), (Shape{made.rows / 2, kColumns}));
      for (int64_t row = 0; row < made.rows / 2; ++row) {
        for (const int64_t first : {int64_t{0}, kMxfp4Columns}) {
          const std::vector<float> values = floats_of(**rows, row, first, kColumns - first);
          for (size_t c = 0; c < values.size(); ++c) {
            EXPECT_EQ(values[c],
                      made.value(expert, 2 * row + half, first + static_cast<int64_t>(c)));
          }
        }
      }
    }
  }
}

std::string hub_file(const Made& made) {
  std::string blocks, scales;
  for (int64_t b = 0; b < kExperts * made.rows * kBlocks; ++b) {
    scales.push_back(static_cast<char>(made.scales[static_cast<size_t>(b)]));
    for (int64_t i = 0; i < kMxfp4NibbleBytes; ++i) {
      blocks.push_back(static_cast<char>(made.number(b, 2 * i) | made.number(b, 2 * i + 1) << 4));
    }
  }
  std::vector<float> down(static_cast<size_t>(kExperts * 5 * 4));
  for (size_t i = 0; i < down.size(); ++i) down[i] = static_cast<float>(i);
  SafetensorsBuilder builder;
  builder.add("gate_up_blocks", "U8", {kExperts, made.rows, kBlocks, kMxfp4NibbleBytes}, blocks)
      .add("gate_up_scales", "U8", {kExperts, made.rows, kBlocks}, scales)
      .add_f32("down", {kExperts, 5, 4}, down);
  return builder.build();
}

Result<std::unique_ptr<SafetensorsWeightSource>> open_hub(const std::string& bytes) {
  HR_ASSIGN_OR_RETURN(
      auto file, SafetensorsFile::from_memory(std::as_bytes(std::span(bytes.data(), bytes.size())),
                                              "t.safetensors"));
  return SafetensorsWeightSource::create(
      {file}, "t.safetensors",
      {.names = kNames, .quantisation = HubQuantisation{.method = HubMethod::kMxfp4}});
}

TEST(HubExperts, Mxfp4IsReadWithNothingLost) {
  // All scales are of f16 numbers, or some are not.
  for (const auto& [low, high, dtype] :
       {std::tuple(104, 144, DType::kE2M1), std::tuple(60, 200, DType::kF32)}) {
    const Made made(2 * kRows, low, high);
    const std::string bytes = hub_file(made);
    const auto source = open_hub(bytes);
    ASSERT_TRUE(source.ok()) << source.status().message();
    expect_rows(**source, made, dtype);
  }
}

TEST(HubExperts, TurnedMatricesAreTurnedBack) {
  const std::string bytes = hub_file(Made(2, 120, 130));
  const auto source = open_hub(bytes);
  ASSERT_TRUE(source.ok()) << source.status().message();
  const auto down = (*source)->get("down.weight", Shape{kExperts, 4, 5});
  ASSERT_TRUE(down.ok()) << down.status().message();
  for (int64_t e = 0; e < kExperts; ++e) {
    const auto rows = (*source)->rows("down.weight", e);
    ASSERT_TRUE(rows.ok());
    for (int64_t row = 0; row < 4; ++row) {
      const std::vector<float> values = floats_of(**rows, row, 1, 3);
      for (int64_t c = 0; c < 3; ++c) {
        EXPECT_EQ(values[static_cast<size_t>(c)], static_cast<float>((e * 5 + 1 + c) * 4 + row));
      }
    }
  }
}

// Qwen 3 VL's, of rows that are as wide as its router: two experts of three gates and three ups,
// of which one tensor may be square.
TEST(HubExperts, MatricesMayBeTurnedOrNot) {
  constexpr int64_t kTwo = 2, kWidth = 3;
  static constexpr auto kEither = std::to_array<HfTensorName>({
      {"mlp.gate.weight", "router.weight"},
      {"mlp.experts.gate_up_proj", "gate.weight", 0, "up.weight", HfForm::kTurnedByWidth},
      {"mlp.experts.down_proj", "down.weight", 0, "", HfForm::kTurnedByWidth},
  });
  // [two, rows, columns] of which matrix `e` has 100 e + 10 row + column; or each turned.
  const auto stack = [](int64_t rows, int64_t columns, bool turned) {
    std::vector<float> values;
    for (int64_t i = 0; i < kTwo * rows * columns; ++i) {
      const int64_t e = i / (rows * columns), at = i % (rows * columns);
      const int64_t row = turned ? at % rows : at / columns;
      const int64_t column = turned ? at / rows : at % columns;
      values.push_back(static_cast<float>(100 * e + 10 * row + column));
    }
    return values;
  };
  for (const auto& [turned, wide] : {std::pair(false, int64_t{5}),
                                     {true, 5},
                                     {false, 2 * kWidth},
                                     {true, 2 * kWidth},
                                     {false, kWidth},
                                     {true, kWidth}}) {
    SafetensorsBuilder builder;
    const auto shape = [&, turned = turned](int64_t rows, int64_t columns) {
      return turned ? std::vector<int64_t>{kTwo, columns, rows}
                    : std::vector<int64_t>{kTwo, rows, columns};
    };
    builder.add_f32("mlp.gate.weight", {kTwo, wide},
                    std::vector<float>(static_cast<size_t>(kTwo * wide)));
    builder.add_f32("mlp.experts.gate_up_proj", shape(2 * kWidth, wide),
                    stack(2 * kWidth, wide, turned));
    builder.add_f32("mlp.experts.down_proj", shape(wide, kWidth), stack(wide, kWidth, turned));
    const std::string bytes = builder.build();
    auto file = SafetensorsFile::from_memory(std::as_bytes(std::span(bytes.data(), bytes.size())),
                                             "t.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto source =
        SafetensorsWeightSource::create({*file}, "t.safetensors", {.names = kEither});
    ASSERT_TRUE(source.ok()) << source.status().message();
    const auto expect = [&](const char* name, int64_t rows, int64_t columns, int64_t first) {
      const auto all = (*source)->get(name, Shape{kTwo, rows, columns});
      ASSERT_TRUE(all.ok()) << all.status().message();
      const auto* values = reinterpret_cast<const float*>(all->data);
      for (int64_t i = 0; i < kTwo * rows * columns; ++i) {
        const int64_t e = i / (rows * columns), at = i % (rows * columns);
        EXPECT_EQ(values[i],
                  static_cast<float>(100 * e + 10 * (first + at / columns) + at % columns));
      }
    };
    expect("gate.weight", kWidth, wide, 0);
    expect("up.weight", kWidth, wide, kWidth);
    expect("down.weight", wide, kWidth, 0);
  }
}

// Inkling's: of a matrix by itself, and of a stack, whose rows may not be aligned.
TEST(HubExperts, RowsOfGatesAndUpsMayLieByTurns) {
  constexpr int64_t kTwo = 2, kWidth = 3;
  static constexpr auto kTurns = std::to_array<HfTensorName>({
      {"w13", "gate.weight", 0, "up.weight", HfForm::kRowsByTurns},
      {"experts.w13", "gates.weight", 0, "ups.weight", HfForm::kRowsByTurns},
  });
  for (const int64_t columns : {4, 5}) {
    std::vector<float> values;
    for (int64_t i = 0; i < kTwo * 2 * kWidth * columns; ++i) {
      values.push_back(static_cast<float>(i));
    }
    SafetensorsBuilder builder;
    builder.add_f32("experts.w13", {kTwo, 2 * kWidth, columns}, values);
    values.resize(values.size() / kTwo);
    builder.add_f32("w13", {2 * kWidth, columns}, values);
    const std::string bytes = builder.build();
    auto file = SafetensorsFile::from_memory(std::as_bytes(std::span(bytes.data(), bytes.size())),
                                             "t.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto source =
        SafetensorsWeightSource::create({*file}, "t.safetensors", {.names = kTurns});
    ASSERT_TRUE(source.ok()) << source.status().message();
    // Row r of the half is row 2 r + odd of the tensor.
    const auto expect = [&](const ConstTensorView& view, int64_t first, int64_t odd) {
      for (int64_t r = 0; r < kWidth; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          const auto* const row = reinterpret_cast<const float*>(view.row(r));
          EXPECT_EQ(row[c], static_cast<float>(first + (2 * r + odd) * columns + c));
        }
      }
    };
    const Shape one{kWidth, columns}, stack{kTwo, kWidth, columns};
    for (const int64_t odd : {0, 1}) {
      expect(*(*source)->get(odd == 0 ? "gate.weight" : "up.weight", one), 0, odd);
      const char* const name = odd == 0 ? "gates.weight" : "ups.weight";
      const ConstTensorView whole = *(*source)->get(name, stack);
      for (int64_t e = 0; e < kTwo; ++e) {
        const int64_t first = e * 2 * kWidth * columns;
        expect(*(*source)->get_matrix(name, stack, e), first, odd);
        expect({whole.data + e * kWidth * whole.row_stride, whole.dtype, one}, first, odd);
      }
    }
  }
  SafetensorsBuilder odd;
  odd.add_f32("w13", {3, 2}, std::vector<float>(6));
  const std::string bytes = odd.build();
  auto file = SafetensorsFile::from_memory(std::as_bytes(std::span(bytes.data(), bytes.size())),
                                           "t.safetensors");
  EXPECT_EQ(SafetensorsWeightSource::create({*file}, "t.safetensors", {.names = kTurns})
                .status()
                .message(),
            "t.safetensors: tensor w13: shape [3, 2] is no stack of gates and ups");
}

TEST(HubExperts, WrongFormsAreRefusedByName) {
  const auto message = [](SafetensorsBuilder builder) {
    const std::string bytes = builder.build();
    return open_hub(bytes).status().message();
  };
  const std::string block(16, '\0');
  EXPECT_EQ(message(SafetensorsBuilder().add("gate_up_blocks", "U8", {1, 1, 1, 16}, block)),
            "t.safetensors: tensor gate_up_blocks: shape [1, 1, 1, 16] is no stack of matrices of "
            "MXFP4");
  EXPECT_EQ(message(SafetensorsBuilder().add("gate_up_blocks", "U8", {1, 2, 1, 16}, block + block)),
            "t.safetensors: tensor gate_up_blocks: its scales are missing");
  EXPECT_EQ(message(SafetensorsBuilder()
                        .add("gate_up_blocks", "U8", {1, 2, 1, 16}, block + block)
                        .add("gate_up_scales", "U8", {1, 3, 1}, "abc")),
            "t.safetensors: tensor gate_up_scales: shape [1, 3, 1] is none of the scales of [1, 2, "
            "1, 16]");
  EXPECT_EQ(message(SafetensorsBuilder().add_f32("down", {2, 2}, std::vector<float>(4))),
            "t.safetensors: tensor down: shape [2, 2] is no stack of turned matrices");
}

// GGUF files have a block's scale before its numbers, those of its second half in the upper bits.
// Of 32 bits or 64, as F32; others are refused by the tensor's name.
TEST(HubExperts, IntegersAreReadAsFloats) {
  constexpr auto kTable =
      std::to_array<HfTensorName>({{"table", "table.weight", 0, "", HfForm::kIntegers}});
  const std::vector<int64_t> numbers = {3, 0, 129279, -2, 7, 1 << 20};
  std::string memory;
  const auto open =
      [&](const std::string& type,
          const std::string& bytes) -> Result<std::unique_ptr<SafetensorsWeightSource>> {
    SafetensorsBuilder builder;
    memory = builder.add("table", type, {3, 2}, bytes).build();
    HR_ASSIGN_OR_RETURN(
        auto file, SafetensorsFile::from_memory(
                       std::as_bytes(std::span(memory.data(), memory.size())), "t.safetensors"));
    return SafetensorsWeightSource::create({file}, "t.safetensors", {.names = kTable});
  };
  for (const bool wide : {true, false}) {
    std::string bytes;
    for (const int64_t number : numbers) {
      bytes.append(reinterpret_cast<const char*>(&number), wide ? 8 : 4);
    }
    const auto source = open(wide ? "I64" : "I32", bytes);
    ASSERT_TRUE(source.ok()) << source.status().message();
    const auto table = (*source)->get("table.weight", Shape{3, 2});
    ASSERT_TRUE(table.ok()) << table.status().message();
    for (int64_t r = 0; r < 3; ++r) {
      std::vector<float> row(2);
      dequantise_row(*table, r, row.data());
      EXPECT_EQ(row[0], static_cast<float>(numbers[static_cast<size_t>(2 * r)]));
      EXPECT_EQ(row[1], static_cast<float>(numbers[static_cast<size_t>(2 * r + 1)]));
    }
  }
  const auto bad = open("I16", std::string(12, '\0'));
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(),
            "t.safetensors: tensor table: I16 [3, 2] is no matrix of I32 or I64");
}

TEST(HubExperts, GgufFilesHaveTheSameNumbers) {
  const Made made(2 * kRows, 104, 144);
  GgufBuilder builder;
  constexpr uint32_t kMxfp4Type = 39;
  for (const int64_t half : {0, 1}) {
    std::string data;
    for (int64_t row = half; row < kExperts * made.rows; row += 2) {
      for (int64_t b = row * kBlocks; b < (row + 1) * kBlocks; ++b) {
        data.push_back(static_cast<char>(made.scales[static_cast<size_t>(b)]));
        for (int64_t i = 0; i < kMxfp4NibbleBytes; ++i) {
          data.push_back(static_cast<char>(made.number(b, i) | made.number(b, i + 16) << 4));
        }
      }
    }
    builder.add_tensor(half == 0 ? "gate.weight" : "up.weight", {kColumns, kRows, kExperts},
                       kMxfp4Type);
    builder.tensors.back().data = data;
  }
  const std::string bytes = builder.build();
  const auto file =
      GgufFile::from_memory(std::as_bytes(std::span(bytes.data(), bytes.size())), "t.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  expect_rows(GgufWeightSource(*file), made, DType::kE2M1);
}

}  // namespace
}  // namespace headrace::hub_experts_test
