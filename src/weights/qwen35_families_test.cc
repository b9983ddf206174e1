#include "weights/qwen35_families.h"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace headrace::qwen35_families_test
