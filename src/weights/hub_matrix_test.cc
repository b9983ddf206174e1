// Quantised matrices of Hugging Face files: bit for bit what the formats' own tools dequantise
// (tests/models/make_quantised_models.py), and what is refused.
#include "weights/hub_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/json.h"
#include "tensor/float8.h"
#include "tensor/quantised_row.h"
#include "weights/hub_float8.h"
#include "weights/safetensors_fixture.h"
#include "weights/safetensors_source.h"

namespace headrace::hub_matrix_test {
namespace {

std::string fnv1a(std::span<const float> values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : std::as_bytes(values)) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// Some columns of all rows, so many rows at a time.
std::vector<float> floats_of(const RowReader& matrix, int64_t first_column, int64_t columns,
                             int64_t rows_at_once) {
  const int64_t n = matrix.shape()[0];
  const auto bytes = static_cast<size_t>(*row_bytes(matrix.dtype(), columns));
  std::vector<float> values(static_cast<size_t>(n * columns));
  for (int64_t first = 0; first < n; first += rows_at_once) {
    std::vector<int64_t> rows;
    for (int64_t r = first; r < std::min(first + rows_at_once, n); ++r) rows.push_back(r);
    std::vector<std::byte> made(bytes * rows.size());
    matrix.read(rows, first_column, columns, made.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      dequantise_row(matrix.dtype(), std::span(made).subspan(i * bytes, bytes),
                     std::span(values).subspan(static_cast<size_t>(rows[i] * columns),
                                               static_cast<size_t>(columns)));
    }
  }
  return values;
}

// Columns from the second block on, where there are any.
void expect_last_columns(const RowReader& matrix, const std::vector<float>& values) {
  const int64_t columns = matrix.shape()[1];
  const auto block = std::max<int64_t>(32, dtype_info(matrix.dtype()).block_elements);
  if (columns <= block) return;
  const auto width = static_cast<size_t>(columns), less = static_cast<size_t>(columns - block);
  const std::vector<float> part = floats_of(matrix, block, columns - block, 16);
  for (size_t r = 0; r < part.size() / less; ++r) {
    ASSERT_EQ(0,
              std::memcmp(&part[r * less], &values[(r + 1) * width - less], less * sizeof(float)));
  }
}

Json read_fixture() {
  std::stringstream text;
  text << std::ifstream("tests/data/weights/hub_fixture.json").rdbuf();
  return *parse_json(text.str());
}

TEST(HubMatrix, IsBitForBitWhatTheFormatsToolsDequantise) {
  std::map<DType, int> types;
  const Json fixture = read_fixture();
  ASSERT_EQ(fixture.as_object().size(), 6u);
  for (const auto& [model, modules] : fixture.as_object()) {
    SCOPED_TRACE(model);
    const auto source =
        SafetensorsWeightSource::open("tests/data/models/" + model, {.names = expert_hf_names()});
    ASSERT_TRUE(source.ok()) << source.status().message();
    for (const auto& [module, hash] : modules.as_object()) {
      SCOPED_TRACE(module);
      const auto match = match_hf_name(expert_hf_names(), module + ".weight");
      const std::string name = match ? match->gguf : module + ".weight";
      const bool stack = match && match->expert >= 0;
      const int64_t index = stack ? match->expert : 0;
      const auto rows = (*source)->rows(name, index);
      ASSERT_TRUE(rows.ok()) << rows.status().message();
      const RowReader& matrix = **rows;
      ++types[matrix.dtype()];
      const int64_t columns = matrix.shape()[1];
      const std::vector<float> values = floats_of(matrix, 0, columns, 16);
      EXPECT_EQ(fnv1a(values), hash.as_string());
      EXPECT_EQ(floats_of(matrix, 0, columns, 7), values);
      expect_last_columns(matrix, values);
      const auto copy = stack ? (*source)->get_matrix(name, index) : (*source)->get(name);
      ASSERT_TRUE(copy.ok());
      EXPECT_EQ(copy->dtype, matrix.dtype());
      std::vector<float> last(static_cast<size_t>(columns));
      dequantise_row(*copy, copy->rows() - 1, last.data());
      EXPECT_TRUE(std::equal(last.begin(), last.end(), values.end() - columns));
      (*source)->release(*copy);
    }
  }
  // Symmetric and not, of groups and of rows; ternary; act-order, FP8 and 8 bits with zero points.
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_Z, DType::kQ8_0, DType::kQ2_K, DType::kF32}) {
    EXPECT_GT(types[dtype], 0) << dtype_name(dtype);
  }
}

TEST(HubMatrix, AByteOfFloat8) {
  EXPECT_EQ(e4m3_to_float(0x00), 0.0f);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_float(0x08), 0x1p-6f);
  EXPECT_EQ(e4m3_to_float(0x38), 1.0f);
  EXPECT_EQ(e4m3_to_float(0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7f)));
}

// ---- what is refused ----

constexpr HubQuantisation kGptq{.method = HubMethod::kGptq, .bits = 4, .zeros_less_one = true};
constexpr HubQuantisation kCompressed{.method = HubMethod::kCompressedTensors};

std::string f16s(std::vector<uint16_t> bits) {
  return {reinterpret_cast<const char*>(bits.data()), bits.size() * 2};
}
std::string ones_f16(size_t count) { return f16s(std::vector<uint16_t>(count, 0x3c00)); }

// 8 rows of 64 columns in groups of 32.
SafetensorsBuilder gptq_matrix(const std::string& scales) {
  SafetensorsBuilder builder;
  builder.add("a.qweight", "I32", {8, 8}, std::string(256, '\x12'))
      .add("a.qzeros", "I32", {2, 1}, std::string(8, '\x77'))
      .add("a.scales", "F16", {2, 8}, scales);
  return builder;
}

// Of opening a file's only matrix and reading it.
Status status_of(const SafetensorsBuilder& builder, const HubQuantisation& quantisation) {
  const std::string bytes = builder.build();
  auto file = SafetensorsFile::from_memory(std::as_bytes(std::span(bytes)), "f");
  HR_RETURN_IF_ERROR(file.status());
  const auto source =
      SafetensorsWeightSource::create({*file}, "f", {.names = {}, .quantisation = quantisation});
  HR_RETURN_IF_ERROR(source.status());
  return (*source)->get("a.weight").status();
}

TEST(HubMatrix, ScalesThatMeanNothingAreRefused) {
  EXPECT_TRUE(status_of(gptq_matrix(ones_f16(16)), kGptq).ok());
  for (const auto& [bits, text] : {std::pair<uint16_t, std::string>{0, "0"},
                                   {0x8000, "-0"},
                                   {0x7e00, "nan"},
                                   {0x7c00, "inf"}}) {
    std::vector<uint16_t> scales(16, 0x3c00);
    scales[11] = bits;
    EXPECT_EQ(status_of(gptq_matrix(f16s(scales)), kGptq).message(),
              "f: tensor a.scales: scale 11 of 16 is " + text + ", which no weights can have");
  }
  // F32 numbers that no f16 is near.
  const auto wide = [](float scale) {
    SafetensorsBuilder builder;
    builder.add("a.weight", "I8", {1, 32}, std::string(32, '\1'))
        .add_f32("a.weight_scale", {1, 1}, std::span(&scale, 1));
    return builder;
  };
  EXPECT_TRUE(status_of(wide(0.01f), kCompressed).ok());
  EXPECT_FALSE(status_of(wide(1e6f), kCompressed).ok());
  EXPECT_FALSE(status_of(wide(1e-9f), kCompressed).ok());
}

TEST(HubMatrix, PartsThatAreMissingOrDoNotFitAreNamed) {
  SafetensorsBuilder alone;
  alone.add("a.qweight", "I32", {8, 8}, std::string(256, '\0'));
  EXPECT_EQ(status_of(alone, kGptq).message(),
            "f: tensor a.qweight: its scales are missing (scales, weight_scale or weight_scale_inv "
            "beside it)");
  SafetensorsBuilder no_zeros;
  no_zeros.add("a.qweight", "I32", {8, 8}, std::string(256, '\0'))
      .add("a.scales", "F16", {2, 8}, ones_f16(16));
  EXPECT_EQ(status_of(no_zeros, kGptq).message(),
            "f: tensor a.qweight: qzeros is missing beside it");
  SafetensorsBuilder no_weights;
  no_weights.add("a.scales", "F16", {2, 8}, ones_f16(16));
  EXPECT_EQ(status_of(no_weights, kGptq).message(),
            "f: tensor a.scales: the weights that it is of are missing");
  SafetensorsBuilder wrong_group = gptq_matrix(ones_f16(16));
  wrong_group.add("a.g_idx", "I32", {64}, std::string(256, '\5'));
  EXPECT_EQ(status_of(wrong_group, kGptq).message(),
            "f: tensor a.g_idx: column 0 is of group 84215045, of 2");
  SafetensorsBuilder groups;
  groups.add("a.qweight", "I32", {8, 8}, std::string(256, '\0'))
      .add("a.qzeros", "I32", {3, 1}, std::string(12, '\0'))
      .add("a.scales", "F16", {3, 8}, ones_f16(24));
  EXPECT_EQ(status_of(groups, kGptq).message(),
            "f: tensor a.scales: shape [3, 8] does not go with 4 bits of 8 x 64 in 3 groups of "
            "columns");
  SafetensorsBuilder bytes;  // not words, which GPTQ has
  bytes.add("a.qweight", "I8", {8, 8}, std::string(64, '\0'))
      .add("a.scales", "F16", {1, 8}, ones_f16(8));
  EXPECT_EQ(status_of(bytes, kGptq).message(), "f: tensor a.qweight: type I8, expected I32");
  SafetensorsBuilder no_shape;
  no_shape.add("a.weight_packed", "I32", {8, 8}, std::string(256, '\0'))
      .add("a.weight_scale", "F16", {8, 2}, ones_f16(16));
  EXPECT_EQ(status_of(no_shape, kCompressed).message(),
            "f: tensor a.weight_packed: weight_shape is missing beside it");
  SafetensorsBuilder blocks;
  blocks.add("a.weight", "F8_E4M3", {8, 8}, std::string(64, '\0'))
      .add("a.weight_scale_inv", "F16", {2, 2}, ones_f16(4));
  EXPECT_EQ(
      status_of(blocks, {.method = HubMethod::kFp8}).message(),
      "f: tensor a.weight_scale_inv: shape [2, 2] is no scale for all, each row or each 128 x "
      "128 of [8, 8]");
}

// A matrix of experts that only some have quantised.
TEST(HubMatrix, AStackIsQuantisedOrItIsNot) {
  const auto experts = [](int32_t quantised) {
    SafetensorsBuilder builder;
    for (int32_t e = 0; e < 2; ++e) {
      const std::string name = "model.layers.0.mlp.experts." + std::to_string(e) + ".up_proj.";
      if (e < quantised) {
        builder.add(name + "weight", "I8", {2, 32}, std::string(64, '\3'))
            .add(name + "weight_scale", "F16", {2, 1}, ones_f16(2));
      } else {
        builder.add(name + "weight", "F16", {2, 32}, ones_f16(64));
      }
    }
    return builder.build();
  };
  const auto source_of = [](const std::string& bytes) {
    auto file = SafetensorsFile::from_memory(std::as_bytes(std::span(bytes)), "f");
    return SafetensorsWeightSource::create(
        {*file}, "f", {.names = expert_hf_names(), .quantisation = kCompressed});
  };
  const std::string both = experts(2), one = experts(1);
  const auto source = source_of(both);
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ((*source)->info("blk.0.ffn_up_exps.weight")->type, "INT8-channel");
  const auto second = (*source)->get_matrix("blk.0.ffn_up_exps.weight", Shape{2, 2, 32}, 1);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->dtype, DType::kQ8_0);
  const auto all = (*source)->get("blk.0.ffn_up_exps.weight", Shape{2, 2, 32});
  ASSERT_TRUE(all.ok());
  std::vector<float> row(32);
  dequantise_row(ConstTensorView(all->data, all->dtype, Shape{4, 32}), 3, row.data());
  EXPECT_EQ(row, std::vector<float>(32, 3.0f));
  EXPECT_EQ(
      source_of(one).status().message(),
      "f: tensor model.layers.0.mlp.experts.0.up_proj.weight: some matrices of this stack are "
      "quantised, and others are not");
}

// AutoGPTQ wrote biases of zeros into models that have none.
TEST(HubMatrix, ABiasOfZerosAddsNothing) {
  SafetensorsBuilder builder = gptq_matrix(ones_f16(16));
  builder.add("a.bias", "F16", {8}, std::string(16, '\0'))
      .add("b.bias", "F16", {1}, ones_f16(1))
      .add("c", "F16", {1}, std::string(2, '\0'));
  const std::string bytes = builder.build();
  const auto file = SafetensorsFile::from_memory(std::as_bytes(std::span(bytes)), "f");
  const auto source =
      SafetensorsWeightSource::create({*file}, "f", {.names = {}, .quantisation = kGptq});
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_TRUE((*source)->adds_nothing("a.bias"));
  EXPECT_FALSE((*source)->adds_nothing("b.bias"));
  EXPECT_FALSE((*source)->adds_nothing("c"));
}

// ---- 4-bit floats ----

// Row r, column c of 32: number (r + c) % 16; scales 1, 2 | 0.5, 1.5, of which all have 0.25.
SafetensorsBuilder nvfp4_matrix(const char* quants, const char* global, float of_all) {
  std::string bytes;
  for (int r = 0; r < 2; ++r) {
    for (int c = 0; c < 32; c += 2) {
      bytes.push_back(static_cast<char>((r + c) % 16 | (r + c + 1) % 16 << 4));
    }
  }
  SafetensorsBuilder builder;
  builder.add(quants, "U8", {2, 16}, bytes)
      .add("a.weight_scale", "F8_E4M3", {2, 2}, "\x38\x40\x30\x3c")
      .add_f32(global, {1}, std::vector<float>{of_all})
      .add_f32("a.input_scale", {1}, std::vector<float>{3.0f});
  return builder;
}

TEST(HubMatrix, Nvfp4OfBothTools) {
  constexpr float kNumbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  constexpr float kScales[2][2] = {{1, 2}, {0.5f, 1.5f}};
  const auto expect = [&](SafetensorsBuilder builder, const HubQuantisation& quantisation) {
    const std::string bytes = builder.build();
    const auto file = SafetensorsFile::from_memory(std::as_bytes(std::span(bytes)), "f");
    const auto source =
        SafetensorsWeightSource::create({*file}, "f", {.names = {}, .quantisation = quantisation});
    ASSERT_TRUE(source.ok()) << source.status().message();
    const auto rows = (*source)->rows("a.weight", 0);
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    EXPECT_EQ((*rows)->fast_type(), DType::kQ8_0);
    for (const int64_t first : {0, 5, 16}) {
      const std::vector<float> values = floats_of(**rows, first, 32 - first, 1);
      for (int64_t r = 0; r < 2; ++r) {
        for (int64_t c = first; c < 32; ++c) {
          const auto number = static_cast<size_t>((r + c) % 16);
          const float sign = number < 8 ? 1.0f : -1.0f;
          EXPECT_EQ(values[static_cast<size_t>(r * (32 - first) + c - first)],
                    sign * kNumbers[number % 8] * kScales[r][c / 16] * 0.25f)
              << r << " " << c;
        }
      }
    }
  };
  expect(nvfp4_matrix("a.weight", "a.weight_scale_2", 0.25f), {.method = HubMethod::kModelOpt});
  expect(nvfp4_matrix("a.weight_packed", "a.weight_global_scale", 4.0f), kCompressed);
}

TEST(HubMatrix, FourBitFloatsThatAreNoneAreRefusedByName) {
  const auto message = [](SafetensorsBuilder builder) {
    return status_of(builder, kCompressed).message();
  };
  const std::string quants(32, '\0');
  EXPECT_EQ(message(SafetensorsBuilder()
                        .add("a.weight_packed", "U8", {2, 16}, quants)
                        .add("a.weight_scale", "F8_E4M3", {2, 2}, "abcd")),
            "f: tensor a.weight_packed: the scale of all of it is missing (weight_scale_2 or "
            "weight_global_scale beside it)");
  EXPECT_EQ(message(SafetensorsBuilder()
                        .add("a.weight_packed", "U8", {2, 16}, quants)
                        .add("a.weight_scale", "F8_E4M3", {2, 1}, "ab")),
            "f: tensor a.weight_scale: shape [2, 1] is no scale for each 16 columns of [2, 32]");
  EXPECT_EQ(message(SafetensorsBuilder()
                        .add("a.weight_packed", "U8", {2, 16}, quants)
                        .add("a.weight_scale", "F8_E4M3", {2, 2}, "abc\x7f")
                        .add_f32("a.weight_global_scale", {1}, std::vector<float>{1.0f})),
            "f: tensor a.weight_scale: scale 3 of 4 is NaN, which no weights can have");
  EXPECT_EQ(message(SafetensorsBuilder()
                        .add("a.weight", "F8_E4M3", {2, 16}, quants)
                        .add_f32("a.weight_scale", {1}, std::vector<float>{1.0f})
                        .add_f32("a.weight_scale_2", {1}, std::vector<float>{1.0f})),
            "f: tensor a.weight_scale_2: is a scale of NVFP4, which this matrix is not");
}

// ---- quantization_config ----

std::string config_error(const std::string& text) {
  const auto found = hub_quantisation_from_json(*parse_json(text), "c");
  return found.ok() ? "" : found.status().message();
}

TEST(HubQuantisation, SpellingsOfTheTools) {
  const auto read = [](const std::string& text) {
    return *hub_quantisation_from_json(*parse_json(text), "c");
  };
  EXPECT_EQ(read(R"({"quant_method": "gptq", "bits": 8})").bits, 8);
  EXPECT_TRUE(read(R"({"quant_method": "gptq", "bits": 8})").zeros_less_one);
  EXPECT_FALSE(read(R"({"quant_method": "gptq", "checkpoint_format": "gptq_v2"})").zeros_less_one);
  EXPECT_EQ(
      read(R"({"bits": 4, "group_size": 128, "damp_percent": 0.1, "desc_act": false})").method,
      HubMethod::kGptq);
  EXPECT_EQ(
      read(R"({"zero_point": true, "q_group_size": 128, "w_bit": 4, "version": "GEMM"})").method,
      HubMethod::kAwq);
  EXPECT_EQ(read(R"({"quant_method": "fp8", "weight_block_size": [64, 32]})").block_columns, 32);
  EXPECT_EQ(read(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})").method,
            HubMethod::kModelOpt);
  EXPECT_EQ(config_error(R"({"quant_method": "compressed-tensors",
                             "format": "nvfp4-pack-quantized", "config_groups": {"group_0":
                             {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}})"),
            "");
  EXPECT_EQ(config_error(R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})"),
            "c: quantization_config: quant_algo: W4A8_AWQ is not supported (FP8 and NVFP4 are)");
  EXPECT_EQ(config_error(R"({"quant_method": "compressed-tensors", "format": "int-quantized",
                             "sparsity_config": {}, "config_groups": {"group_0": {"weights":
                             {"num_bits": 8, "type": "int", "strategy": "channel"}}}})"),
            "");
}

// Beside a config.json that says nothing of it.
TEST(HubQuantisation, FilesOfOlderTools) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "hub-old";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  write("config.json", "{}");
  EXPECT_FALSE(hub_quantisation_of_folder(folder.string())->has_value());
  write("quantize_config.json", R"({"bits": 8, "damp_percent": 0.01})");
  EXPECT_EQ((**hub_quantisation_of_folder(folder.string())).bits, 8);
  write("config.json", R"({"quantization_config": {"quant_method": "fp8"}})");
  EXPECT_EQ((**hub_quantisation_of_folder(folder.string())).method, HubMethod::kFp8);
  write("config.json", "{}");
  std::filesystem::remove(folder / "quantize_config.json");
  write("hf_quant_config.json",
        R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}})");
  EXPECT_EQ((**hub_quantisation_of_folder(folder.string())).method, HubMethod::kModelOpt);
  // The cache alone.
  write("hf_quant_config.json",
        R"({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})");
  EXPECT_FALSE(hub_quantisation_of_folder(folder.string())->has_value());
  std::filesystem::remove_all(folder);
}

TEST(HubQuantisation, WhatCannotBeReadIsNamed) {
  EXPECT_EQ(config_error(R"({"quant_method": "hqq"})"),
            "c: quantization_config: quant_method: hqq is not supported (gptq, awq, "
            "compressed-tensors, fp8, modelopt, mxfp4 and bitnet are)");
  EXPECT_EQ(config_error(R"({"quant_method": "gptq", "bits": 3})"),
            "c: quantization_config: bits: 3 is not supported (4 and 8 are)");
  EXPECT_EQ(config_error(R"({"quant_method": "gptq", "checkpoint_format": "marlin"})"),
            "c: quantization_config: checkpoint_format: marlin is not supported (gptq and gptq_v2 "
            "are)");
  EXPECT_EQ(config_error(R"({"quant_method": "bitnet", "quantization_mode": "online"})"),
            "c: quantization_config: quantization_mode: online is not supported (offline is)");
  EXPECT_EQ(config_error(R"({"quant_method": "bitnet", "use_rms_norm": true})"),
            "c: quantization_config: use_rms_norm: is not supported");
  EXPECT_EQ(config_error(R"({"quant_method": "awq", "version": "gemv"})"),
            "c: quantization_config: version: gemv is not supported (gemm is)");
  EXPECT_EQ(
      config_error(R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights":
                             {"num_bits": 6, "type": "float"}}}})"),
      "c: quantization_config: num_bits: float 6 is not supported (int and float 4 and 8 are)");
  EXPECT_EQ(config_error(R"({"quant_method": "compressed-tensors", "format": "marlin-24",
                             "config_groups": {}})"),
            "c: quantization_config: format: marlin-24 is not supported (pack-quantized, "
            "int-quantized, float-quantized, naive-quantized, nvfp4-pack-quantized and "
            "mxfp4-pack-quantized are)");
  EXPECT_EQ(config_error(R"({"quant_method": "fp8", "weight_block_size": [0, 128]})"),
            "c: weight_block_size: is no pair of sizes");
  EXPECT_EQ(config_error("{}"),
            "c: quantization_config: quant_method: none is not supported (gptq, awq, "
            "compressed-tensors, fp8, modelopt, mxfp4 and bitnet are)");
}

}  // namespace
}  // namespace headrace::hub_matrix_test
