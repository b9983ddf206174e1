#include "weights/safetensors_source.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "tensor/quantised_row.h"
#include "weights/gguf_fixture.h"
#include "weights/safetensors_fixture.h"

namespace headrace::safetensors_source_test {
namespace {

namespace fs = std::filesystem;

std::vector<float> ramp(size_t count, float first) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = first + 0.37f * static_cast<float>(i);
  return values;
}

std::vector<float> floats(const ConstTensorView& view) {
  std::vector<float> values(static_cast<size_t>(*view.shape.elements()));
  const auto bytes = static_cast<size_t>(*tensor_bytes(view.dtype, view.shape));
  dequantise_row(view.dtype, {view.data, bytes}, values);
  return values;
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("hf-") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  void write_index(const std::map<std::string, std::string>& shards) {
    std::string map;
    for (const auto& [tensor, shard] : shards) {
      map += (map.empty() ? "\"" : ",\"") + tensor + "\":\"" + shard + "\"";
    }
    write("model.safetensors.index.json",
          R"({"metadata":{"total_size":8},"weight_map":{)" + map + "}}");
  }
  auto open(HfTensorNames names = llama_hf_names(), bool tied = false) {
    return SafetensorsWeightSource::open(folder_.string(),
                                         {.names = names, .tied_embeddings = tied});
  }
  // The error of opening the folder, without its path.
  std::string error() {
    const Status status = open().status();
    const std::string& message = status.message();
    EXPECT_TRUE(message.starts_with(folder_.string())) << message;
    return message.substr(std::min(message.size(), folder_.string().size() + 1));
  }
  static std::string shard(const std::string& tensor) {
    return SafetensorsBuilder().add_f32(tensor, {2}, ramp(2, 1)).build();
  }

  fs::path folder_;
};

TEST_F(Folder, SingleFileUnderGgufNames) {
  write("model.safetensors",
        SafetensorsBuilder()
            .add_f32("model.embed_tokens.weight", {3, 2}, ramp(6, 1))
            .add_f32("model.layers.10.self_attn.q_proj.weight", {2, 2}, ramp(4, -1))
            .add_f32("model.layers.10.self_attn.rotary_emb.inv_freq", {4}, ramp(4, 0))
            .add_f32("lm_head.weight", {3, 2}, ramp(6, 1))
            .add_f32("model.layers.010.mlp.up_proj.weight", {1}, ramp(1, 0))
            .build());
  const auto source = open();
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ((*source)->names(), (std::vector<std::string_view>{
                                    "blk.10.attn_q.weight", "model.layers.010.mlp.up_proj.weight",
                                    "output.weight", "token_embd.weight"}));
  const auto view = (*source)->get("blk.10.attn_q.weight", Shape{2, 2});
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(floats(*view), ramp(4, -1));
  (*source)->release(*view);
  EXPECT_EQ(floats(*(*source)->get("blk.10.attn_q.weight")), ramp(4, -1));
  EXPECT_EQ((*source)->info("token_embd.weight")->name_in_file, "model.embed_tokens.weight");
  EXPECT_EQ((*source)->get("blk.3.ffn_norm.weight").status().message(),
            folder_.string() + ": tensor model.layers.3.post_attention_layernorm.weight: missing");
  // With tied embeddings the library ignores a saved head.
  EXPECT_FALSE((*open(llama_hf_names(), true))->has("output.weight"));
}

TEST_F(Folder, TypesThatCannotBeReadAreNamed) {
  write("model.safetensors", SafetensorsBuilder()
                                 .add("model.norm.weight", "F8_E4M3", {2}, "ab")
                                 .add_f32("lm_head.weight", {1}, ramp(1, 0))
                                 .build());
  const auto source = open();
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_FALSE((*source)->info("output_norm.weight")->dtype.has_value());
  EXPECT_EQ((*source)->get("output_norm.weight").status().message(),
            folder_.string() + ": tensor model.norm.weight: type F8_E4M3 is not supported yet");
}

TEST_F(Folder, DataThatIsNotAlignedIsCopied) {
  write("model.safetensors", SafetensorsBuilder()
                                 .add("lm_head.weight", "BF16", {3}, std::string(6, '\x3f'))
                                 .add_f32("model.norm.weight", {2}, ramp(2, 5))
                                 .build());
  const auto source = open();
  ASSERT_TRUE(source.ok()) << source.status().message();
  const auto view = (*source)->get("output_norm.weight");
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view->data) % 8, 0u);
  EXPECT_EQ(floats(*view), ramp(2, 5));
  (*source)->release(*view);
  EXPECT_EQ(floats(*(*source)->get("output_norm.weight")), ramp(2, 5));
}

TEST_F(Folder, ShardsOfAnIndex) {
  write("a.safetensors", shard("model.norm.weight"));
  write("b.safetensors", shard("lm_head.weight"));
  write_index({{"model.norm.weight", "a.safetensors"}, {"lm_head.weight", "b.safetensors"}});
  const auto source = open();
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ((*source)->files().size(), 2u);
  EXPECT_EQ(floats(*(*source)->get("output.weight")), ramp(2, 1));
  const auto size = [&](const char* name) { return fs::file_size(folder_ / name); };
  EXPECT_EQ((*source)->file_bytes(),
            static_cast<int64_t>(size("a.safetensors") + size("b.safetensors")));
}

TEST_F(Folder, IndexAndShardsMustAgree) {
  const std::string index = "model.safetensors.index.json";
  write("a.safetensors", shard("model.norm.weight"));
  write_index({{"model.norm.weight", "a.safetensors"}, {"lm_head.weight", "b.safetensors"}});
  EXPECT_EQ(error(), "b.safetensors: missing, but " + index + " names it: fetch the folder again");
  write("b.safetensors", shard("other"));
  EXPECT_EQ(error(),
            "b.safetensors: tensor lm_head.weight: missing (" + index + " says it is here)");
  write("b.safetensors", SafetensorsBuilder()
                             .add_f32("lm_head.weight", {1}, ramp(1, 0))
                             .add_f32("model.norm.weight", {1}, ramp(1, 0))
                             .build());
  EXPECT_EQ(error(),
            "b.safetensors: tensor model.norm.weight: " + index + " does not say it is here");
}

TEST_F(Folder, ShardNamesStayInTheFolder) {
  for (const char* name : {"../a.safetensors", "/etc/a.safetensors", "x/a.safetensors",
                           "..\\\\a.safetensors", "a.bin", "", "a\\u0000.safetensors", ".."}) {
    write_index({{"model.norm.weight", name}});
    EXPECT_EQ(error(),
              "model.safetensors.index.json: weight_map: tensor model.norm.weight: its "
              "shard is no name of a .safetensors file in this folder")
        << name;
  }
  for (const char* text : {"{}", R"({"weight_map":{}})", R"({"weight_map":[]})", "[]"}) {
    write("model.safetensors.index.json", text);
    EXPECT_EQ(error(), "model.safetensors.index.json: weight_map: is no object that names shards");
  }
  write("model.safetensors.index.json", "{");
  EXPECT_TRUE(error().starts_with("model.safetensors.index.json: not valid JSON"));
}

TEST_F(Folder, SaysWhatIsThereInstead) {
  EXPECT_EQ(open().status().message(), folder_.string() +
                                           ": there is no model.safetensors and no "
                                           "model.safetensors.index.json");
  write("pytorch_model.bin", "x");
  EXPECT_NE(open().status().message().find("pytorch_model.bin is a pickle"), std::string::npos);
}

TEST_F(Folder, TwoTensorsOfOneMeaning) {
  write("model.safetensors", SafetensorsBuilder()
                                 .add_f32("model.layers.0.mlp.up_proj.weight", {1}, ramp(1, 0))
                                 .add_f32("model.layers.0.mlp.gate_up_proj.weight", {1}, ramp(1, 0))
                                 .build());
  const std::string message = open().status().message();
  EXPECT_TRUE(message.ends_with("are both blk.0.ffn_up.weight")) << message;
}

// ---- the same values in both formats ------------------------------------------------------------

// Names as Gemma's files have them, whose norms multiply by 1 + weight.
constexpr HfTensorName kGemmaLike[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight", 1.0f},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", 1.0f},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", 1.0f},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"vision_tower.*", ""},
};

TEST_F(Folder, OffsetsGiveWhatAGgufFileHolds) {
  // Values whose sum with 1 is rounded, as any converter's sum in fp32 is.
  const std::vector<float> norm = {0.1f, -0.9999999f, 3.0e-8f, 1.0e8f, -1.0f, 0.33333334f};
  write("model.safetensors",
        SafetensorsBuilder()
            .add_f32("model.embed_tokens.weight", {2, 3}, ramp(6, 2))
            .add_f32("model.norm.weight", {6}, norm)
            .add_f32("model.layers.1.input_layernorm.weight", {6}, norm)
            .add_f32("model.layers.1.mlp.up_proj.weight", {3, 2}, ramp(6, -2))
            .add_f32("vision_tower.patch.weight", {1}, ramp(1, 0))
            .add("model.layers.0.self_attn.q_norm.weight", "BF16", {1}, std::string("\x80\x3e", 2))
            .build());
  std::vector<float> stored;
  for (const float value : norm) stored.push_back(value + 1.0f);
  const auto bytes = [](const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  };
  GgufBuilder builder;
  builder.add_tensor("token_embd.weight", {3, 2}, 0).tensors.back().data = bytes(ramp(6, 2));
  builder.add_tensor("output_norm.weight", {6}, 0).tensors.back().data = bytes(stored);
  builder.add_tensor("blk.1.attn_norm.weight", {6}, 0).tensors.back().data = bytes(stored);
  builder.add_tensor("blk.1.ffn_up.weight", {2, 3}, 0).tensors.back().data = bytes(ramp(6, -2));
  builder.add_tensor("blk.0.attn_q_norm.weight", {1}, 0).tensors.back().data = bytes({1.25f});
  const std::string file = builder.build();
  const GgufWeightSource gguf(
      *GgufFile::from_memory(std::as_bytes(std::span(file.data(), file.size())), "t.gguf"));

  const auto source = open(kGemmaLike);
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ((*source)->names().size(), gguf.names().size());
  for (const std::string_view name : gguf.names()) {
    const auto ours = (*source)->get(name), theirs = gguf.get(name);
    ASSERT_TRUE(ours.ok()) << ours.status().message();
    EXPECT_EQ(ours->dtype, DType::kF32);
    EXPECT_EQ(ours->shape, theirs->shape) << name;
    const auto size = static_cast<size_t>(*tensor_bytes(DType::kF32, ours->shape));
    EXPECT_EQ(std::memcmp(ours->data, theirs->data, size), 0) << name;
    EXPECT_EQ((*source)->info(name)->dtype, DType::kF32);
  }
}

std::vector<float> floats_of(const Result<ConstTensorView>& view) {
  EXPECT_TRUE(view.ok()) << view.status().message();
  if (!view.ok()) return {};
  const float* values = reinterpret_cast<const float*>(view->data);
  return {values, values + *view->shape.elements()};
}

// Expert e's matrix is {2, 3} numbers from 10 e on, whichever way the file has it.
TEST_F(Folder, ExpertsAreOneStackHoweverTheFileHasThem) {
  const std::string stem = "model.layers.4.mlp.experts.";
  SafetensorsBuilder apart;
  for (const int e : {2, 0, 1}) {
    const std::string expert = stem + std::to_string(e);
    apart.add_f32(expert + ".gate_proj.weight", {2, 3}, ramp(6, static_cast<float>(10 * e)));
    apart.add_f32(expert + ".up_proj.weight", {2, 3}, ramp(6, static_cast<float>(100 + 10 * e)));
  }
  std::vector<float> both;
  for (const float first : {0.0f, 100.0f, 10.0f, 110.0f, 20.0f, 120.0f}) {
    const std::vector<float> matrix = ramp(6, first);
    both.insert(both.end(), matrix.begin(), matrix.end());
  }
  SafetensorsBuilder fused;
  fused.add_f32(stem + "gate_up_proj", {3, 4, 3}, both);
  for (const std::string& file : {apart.build(), fused.build()}) {
    write("model.safetensors", file);
    const auto source = open(expert_hf_names());
    ASSERT_TRUE(source.ok()) << source.status().message();
    EXPECT_EQ((*source)->names(), (std::vector<std::string_view>{"blk.4.ffn_gate_exps.weight",
                                                                 "blk.4.ffn_up_exps.weight"}));
    const auto gates = (*source)->get("blk.4.ffn_gate_exps.weight");
    std::vector<float> all;
    for (int64_t e = 0; e < 3; ++e) {
      const auto first = static_cast<float>(10 * e);
      const auto gate = (*source)->get_matrix("blk.4.ffn_gate_exps.weight", {3, 2, 3}, e);
      EXPECT_EQ(floats_of(gate), ramp(6, first));
      EXPECT_EQ(floats_of((*source)->get_matrix("blk.4.ffn_up_exps.weight", e)),
                ramp(6, 100 + first));
      (*source)->release(*gate);
      for (const float value : ramp(6, first)) all.push_back(value);
    }
    EXPECT_EQ(floats_of(gates), all);
    EXPECT_EQ(gates->shape, (Shape{3, 2, 3}));
    const auto info = (*source)->info("blk.4.ffn_up_exps.weight");
    EXPECT_EQ(info->shape, (Shape{3, 2, 3}));
    EXPECT_EQ(info->bytes, 72);
    EXPECT_NE((*source)
                  ->get_matrix("blk.4.ffn_up_exps.weight", {4, 2, 3}, 3)
                  .status()
                  .message()
                  .find("shape [3, 2, 3], the model's configuration needs [4, 2, 3]"),
              std::string::npos);
  }
}

TEST_F(Folder, ExpertsThatAreNoStackAreRefused) {
  const auto refused = [&](const SafetensorsBuilder& builder) {
    write("model.safetensors", builder.build());
    const Status status = open(expert_hf_names()).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    return status.message().substr(status.message().find(": ") + 2);
  };
  const std::string stem = "model.layers.0.mlp.experts.", up = ".up_proj.weight";
  EXPECT_EQ(refused(SafetensorsBuilder()
                        .add_f32(stem + "0" + up, {1, 2}, ramp(2, 0))
                        .add_f32(stem + "2" + up, {1, 2}, ramp(2, 0))),
            "tensor " + stem + "2" + up + ": there is none of expert 1");
  EXPECT_EQ(
      refused(SafetensorsBuilder()
                  .add_f32(stem + "0" + up, {1, 2}, ramp(2, 0))
                  .add_f32(stem + "1" + up, {2, 1}, ramp(2, 0))),
      "tensor " + stem + "1" + up + ": F32 [2, 1], but " + stem + "0" + up + " is F32 [1, 2]");
  EXPECT_EQ(refused(SafetensorsBuilder().add_f32(stem + "0" + up, {2}, ramp(2, 0))),
            "tensor " + stem + "0" + up + ": shape [2] is no matrix");
  EXPECT_EQ(refused(SafetensorsBuilder().add_f32(stem + "gate_up_proj", {1, 3, 1}, ramp(3, 0))),
            "tensor " + stem + "gate_up_proj: shape [1, 3, 1] is no stack of gates and ups");
  EXPECT_EQ(refused(SafetensorsBuilder()
                        .add_f32(stem + "0" + up, {1, 2}, ramp(2, 0))
                        .add_f32(stem + "gate_up_proj", {1, 2, 2}, ramp(4, 0))),
            "tensors " + stem + "gate_up_proj and " + stem + "0" + up +
                " are both blk.0.ffn_up_exps.weight");
}

TEST(HfNames, LayersAreTheSameInBothNames) {
  const auto match = match_hf_name(kGemmaLike, "model.layers.123.mlp.up_proj.weight");
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->gguf, "blk.123.ffn_up.weight");
  EXPECT_EQ(match->offset, 0.0f);
  EXPECT_EQ(match_hf_name(kGemmaLike, "model.norm.weight")->offset, 1.0f);
  EXPECT_EQ(match_hf_name(kGemmaLike, "vision_tower.blocks.0.bias")->gguf, "");
  for (const char* name :
       {"model.layers..mlp.up_proj.weight", "model.layers.01.mlp.up_proj.weight",
        "model.layers.1.mlp.up_proj.weight.x", "model.layers.-1.mlp.up_proj.weight",
        "model.layers.1234567890.mlp.up_proj.weight", "", "model.norm"}) {
    EXPECT_FALSE(match_hf_name(kGemmaLike, name).has_value()) << name;
  }
  EXPECT_EQ(hf_name_of(kGemmaLike, "blk.7.attn_norm.weight"),
            "model.layers.7.input_layernorm.weight");
  EXPECT_EQ(hf_name_of(kGemmaLike, "rope_freqs.weight"), "rope_freqs.weight");
}

TEST(HfNames, ExpertsHaveASecondNumber) {
  const auto match =
      match_hf_name(expert_hf_names(), "model.layers.3.mlp.experts.12.up_proj.weight");
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->gguf, "blk.3.ffn_up_exps.weight");
  EXPECT_EQ(match->expert, 12);
  EXPECT_EQ(hf_name_of(expert_hf_names(), "blk.3.ffn_up_exps.weight", 12),
            "model.layers.3.mlp.experts.12.up_proj.weight");
  const auto fused =
      match_hf_name(granite_moe_hf_names(), "model.layers.3.block_sparse_moe.input_linear.weight");
  ASSERT_TRUE(fused.has_value());
  EXPECT_EQ(fused->expert, -1);
  EXPECT_EQ(fused->gguf, "blk.3.ffn_gate_exps.weight");
  EXPECT_EQ(fused->second_half, "blk.3.ffn_up_exps.weight");
  EXPECT_EQ(hf_name_of(granite_moe_hf_names(), "blk.3.ffn_up_exps.weight"),
            "model.layers.3.block_sparse_moe.input_linear.weight");
  EXPECT_FALSE(match_hf_name(expert_hf_names(), "model.layers.3.mlp.experts.x.up_proj.weight"));
}

TEST(HfNames, TheSharedTableIsOneToOneBothWays) {
  std::map<std::string_view, std::string_view> seen;
  for (const HfTensorName& row : llama_hf_names()) {
    EXPECT_TRUE(seen.emplace(row.hf, row.gguf).second) << row.hf;
    if (row.gguf.empty()) continue;
    EXPECT_EQ(row.hf.find("{}") == std::string_view::npos,
              row.gguf.find("{}") == std::string_view::npos)
        << row.hf;
  }
}

}  // namespace
}  // namespace headrace::safetensors_source_test
