#include "weights/qwen35_families.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "weights/gguf_fixture.h"

namespace headrace::qwen35_families_test {
namespace {

// A file of this class, with `more` in the place of its members.
Result<ModelConfig> read(const std::string& more = "") {
  Json config = parse_json(R"({"architectures": ["Qwen4ExpForCausalLM"], "hidden_size": 48,
    "num_hidden_layers": 5, "vocab_size": 96, "eos_token_id": [7, 2], "indexer_n_heads": 5,
    "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 24,
    "indexer_compress_ratio": 8})")
                    .value();
  const Json changed = parse_json("{" + more + "}").value();
  for (const auto& [key, value] : changed.as_object()) config.set(key, value);
  return model_config_from_json(config, Json(), "config.json");
}

ModelConfig config_of(const std::string& more) {
  const auto config = read(more);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ModelConfig();
}
std::string error_of(const std::string& more) {
  const auto config = read(more);
  EXPECT_FALSE(config.ok()) << more;
  return config.ok() ? "" : std::string(config.status().message());
}

TEST(Qwen35Families, AssumesWhatTheClassDoes) {
  const ModelConfig config = config_of("");
  EXPECT_EQ(config.heads, 16);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.mixers.of(2), LayerMixer::kDeltaNet);
  EXPECT_EQ(config.mixers.of(3), LayerMixer::kAttention);
  EXPECT_EQ(config.mixers.gemma.streams, 4);
  EXPECT_EQ(config.mixers.gemma.gate_rank, 320);
  EXPECT_TRUE(config.mixers.gemma.ngrams.layers.empty());
  EXPECT_FALSE(config.mixers.delta.sigmoid_gates);
  const BlockIndexConfig& index = config.mixers.minimax.block_index;
  EXPECT_TRUE(index.pooled);
  EXPECT_EQ(index.heads, 5);
  EXPECT_EQ(index.top, 3);
  EXPECT_EQ(index.tokens, 8);
  EXPECT_EQ(config.experts.count, 512);
  EXPECT_EQ(config.experts.shared_width, 512);
  EXPECT_TRUE(has_joined_layers(config) && has_states(config));
}

TEST(Qwen35Families, LayersThatReadTheLastTokensAreCountedFromOne) {
  const ModelConfig config = config_of(R"("ple_layer_ids": [3, 1, 3], "seed": 4611686018427387904,
      "ngram_size": 4, "heads_per_ngram": 2, "output_gate_type": "sigmoid",
      "layer_types": ["linear_attention", "full_attention", "linear_attention",
                      "indexed_attention", "linear_attention"])");
  const NgramConfig& ngrams = config.mixers.gemma.ngrams;
  EXPECT_EQ(ngrams.layers, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(ngrams.width, 48);
  EXPECT_EQ(ngrams.size, 4);
  EXPECT_EQ(ngrams.hashes, 2);
  EXPECT_EQ(ngrams.taps, 4);
  EXPECT_EQ(ngrams.rows_min, 20000000);
  EXPECT_EQ(ngrams.rows_divisor, 128);
  EXPECT_EQ(ngrams.parts, 512);
  EXPECT_EQ(ngrams.seed, int64_t{1} << 62);
  EXPECT_EQ(ngrams.end_id, 7);
  EXPECT_TRUE(config.mixers.delta.sigmoid_gates);
  EXPECT_EQ(config.mixers.minimax.block_index.layers,
            (std::vector<bool>{false, true, false, true, false}));
}

TEST(Qwen35Families, RefusesWhatItHasNotByItsField) {
  for (const auto& [more, said] :
       {std::pair(R"("indexer_budget": 30)", "indexer_budget: 30 is no number of blocks of 8"),
        {R"("indexer_budget": null)", "indexer_budget: 0 is no number of blocks of 8"},
        {R"("indexer_n_heads": null)", "indexer_n_heads: missing"},
        {R"("indexer_kv_heads": 2)", "indexer_kv_heads: 2 is not supported, only 1"},
        {R"("indexer_head_dim": 100)", "indexer_head_dim: 100 is less than the 256 that rotate"},
        {R"("output_gate_type": "tanh")",
         "output_gate_type: \"tanh\" is not supported (known: silu, sigmoid)"},
        {R"("ple_layer_ids": 3)", "ple_layer_ids: is no list of layers"},
        {R"("ple_layer_ids": [6])", "ple_layer_ids: 6 is none of 5 layers"},
        {R"("ple_layer_ids": [4])", "ple_layer_ids: layer 4 is no linear_attention"},
        {R"("ple_layer_ids": [1], "ple_embed_dim": 30)",
         "ple_embed_dim: 30 are not equally many of 16 hashes"},
        {R"("ple_layer_ids": [1], "eos_token_id": null)",
         "eos_token_id: is no token, which layers of ple_layer_ids need"},
        {R"("ple_layer_ids": [1], "seed": "x")", "seed: is no integer"},
        {R"("ple_layer_ids": [1], "ngram_size": 1)", "ngram_size: is no number from 2 to 16"},
        {R"("ple_layer_ids": [1], "ple_conv_kernel_size": 1)",
         "ple_conv_kernel_size: is no number from 2 to 64"},
        {R"("hc_count": 1)", "hc_count: 1 is outside 2 to 16"},
        {R"("layer_types": ["mamba"])", "layer_types"}}) {
    EXPECT_NE(error_of(more).find(std::string("config.json: ") + said), std::string::npos)
        << error_of(more);
  }
}

// What llama.cpp's converter writes of 4 layers and one that drafts.
GgufBuilder gguf_of(const std::string& architecture) {
  GgufBuilder builder;
  builder.add_text("general.architecture", architecture);
  for (const auto& [name, value] : {std::pair("block_count", 5),
                                    {"nextn_predict_layers", 1},
                                    {"context_length", 128},
                                    {"embedding_length", 32},
                                    {"feed_forward_length", 64},
                                    {"attention.head_count", 4},
                                    {"attention.head_count_kv", 2},
                                    {"attention.key_length", 8},
                                    {"rope.dimension_count", 4},
                                    {"ssm.conv_kernel", 4},
                                    {"ssm.state_size", 8},
                                    {"ssm.group_count", 2},
                                    {"ssm.time_step_rank", 4},
                                    {"ssm.inner_size", 48}}) {
    if (architecture != "qwen35moe" || std::string_view(name) != "feed_forward_length") {
      builder.add_u32(architecture + "." + name, static_cast<uint32_t>(value));
    }
  }
  if (architecture != "qwen35") {
    builder.add_u32(architecture + ".expert_count", 6);
    builder.add_u32(architecture + ".expert_used_count", 2);
    builder.add_u32(architecture + ".expert_feed_forward_length", 16);
    builder.add_u32(architecture + ".expert_shared_feed_forward_length", 24);
  }
  builder.add_f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
  builder.add_tensor("token_embd.weight", {32, 96}, 0);
  builder.add_tensor("blk.0.attn_qkv.weight", {32, 80}, 0);
  return builder;
}

Result<ModelConfig> read(const GgufBuilder& builder) {
  const std::string data = builder.build();
  HR_ASSIGN_OR_RETURN(
      const auto file,
      GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "model.gguf"));
  return model_config_from_gguf(*file);
}

TEST(Qwen35Families, GgufFilesSayWhatFoldersDo) {
  for (const char* architecture : {"qwen35", "qwen35moe", "qwen3next"}) {
    SCOPED_TRACE(architecture);
    const auto config = read(gguf_of(architecture));
    ASSERT_TRUE(config.ok()) << config.status().message();
    const MixerConfig& mixers = config->mixers;
    EXPECT_EQ(config->layers, 4);
    using enum LayerMixer;
    EXPECT_EQ(mixers.by_layer, (std::vector{kDeltaNet, kDeltaNet, kDeltaNet, kAttention}));
    EXPECT_EQ(mixers.value_dim, 12);
    EXPECT_TRUE(mixers.gated_attention);
    EXPECT_FALSE(config->fused.qkv || mixers.rate_is_log || mixers.tensors_by_head);
    const bool next = config->architecture == "qwen3next";
    EXPECT_EQ(mixers.delta.tiled, !next);
    EXPECT_EQ(mixers.delta.gates_by_head, next);
    if (config->experts.count == 0) continue;
    EXPECT_EQ(config->experts.normalised, true);
    EXPECT_EQ(config->experts.shared_width, 24);
  }
}

TEST(Qwen35Families, GgufFilesMayListLayersAndJoinTensors) {
  GgufBuilder builder = gguf_of("qwen3next");
  builder.add_ints("qwen3next.attention.recurrent_layers", {1, 0, 1, 1, 0});
  builder.add_u32("qwen3next.full_attention_interval", 2);
  builder.add_tensor("blk.0.ssm_in.weight", {32, 128}, 0);
  builder.add_tensor("blk.0.ffn_gate_up_exps.weight", {32, 32, 6}, 0);
  const auto config = read(builder);
  ASSERT_TRUE(config.ok()) << config.status().message();
  using enum LayerMixer;
  EXPECT_EQ(config->mixers.by_layer, (std::vector{kDeltaNet, kAttention, kDeltaNet, kDeltaNet}));
  EXPECT_TRUE(config->mixers.tensors_by_head && config->mixers.gemma.experts_fused);
  EXPECT_FALSE(config->mixers.delta.gates_by_head);
  // As many key heads as value heads lie in one order.
  builder = gguf_of("qwen35");
  builder.replace("qwen35.ssm.group_count", GgufValueType::kUint32, raw(uint32_t{4}));
  EXPECT_FALSE(read(builder)->mixers.delta.tiled);
}

TEST(Qwen35Families, RefusesGgufFilesByTheirKeys) {
  const std::string recurrent = "qwen35.attention.recurrent_layers";
  const auto expect_error = [](const GgufBuilder& builder, const std::string& said) {
    const auto config = read(builder);
    ASSERT_FALSE(config.ok()) << said;
    const std::string message(config.status().message());
    EXPECT_NE(message.find("model.gguf: " + said), std::string::npos) << message;
  };
  for (const char* name :
       {"qwen35.ssm.conv_kernel", "qwen35.ssm.state_size", "qwen35.ssm.group_count",
        "qwen35.ssm.time_step_rank", "qwen35.ssm.inner_size"}) {
    GgufBuilder builder = gguf_of("qwen35");
    expect_error(builder.remove(name), std::string(name) + ": missing");
  }
  const auto changed = [](std::string_view name, uint32_t value) {
    return gguf_of("qwen35").replace(name, GgufValueType::kUint32, raw(value));
  };
  expect_error(changed("qwen35.ssm.inner_size", 50),
               "qwen35.ssm.inner_size: 50 is no width of 4 value heads of 1 to 4096");
  expect_error(changed("qwen35.ssm.inner_size", 0), "qwen35.ssm.inner_size: 0 is no width");
  expect_error(changed("qwen35.ssm.group_count", 3),
               "qwen35.ssm.time_step_rank: 3 key heads do not divide 4 value heads");
  expect_error(changed("qwen35.nextn_predict_layers", 5), "qwen35.nextn_predict_layers: 5 layers");
  expect_error(gguf_of("qwen35").add_u32("qwen35.full_attention_interval", 0),
               "qwen35.full_attention_interval: 0 is outside 1 to 1024");
  expect_error(gguf_of("qwen35").add_ints(recurrent, {1, 1}), recurrent + ": 2 flags for 4 layers");
  expect_error(gguf_of("qwen35").add_strings(recurrent, {"a", "b", "c", "d"}),
               recurrent + ": is no list of flags, one a layer");
}

}  // namespace
}  // namespace headrace::qwen35_families_test
