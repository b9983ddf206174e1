#include "weights/mamba_families.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace headrace::mamba_families_test {
namespace {

// A file of `members`, and of `more` in their place.
Result<ModelConfig> read(const std::string& members, const std::string& more = "") {
  Json config = parse_json("{" + members + "}").value();
  const Json changed = parse_json("{" + more + "}").value();
  for (const auto& [key, value] : changed.as_object()) config.set(key, value);
  return model_config_from_json(config, Json(), "config.json");
}
// What is said of it; empty: it is read.
std::string error_of(const std::string& members, const std::string& more = "") {
  const auto config = read(members, more);
  return config.ok() ? "" : std::string(config.status().message());
}

using Mixers = std::vector<LayerMixer>;
constexpr LayerMixer kMamba2 = LayerMixer::kMamba2, kAttention = LayerMixer::kAttention,
                     kNone = LayerMixer::kNone;

const std::string kMambaModel = R"("architectures": ["MambaForCausalLM"], "hidden_size": 48,
  "num_hidden_layers": 2, "state_size": 8, "vocab_size": 100, "time_step_rank": "auto")";
const std::string kJamba = R"("architectures": ["JambaForCausalLM"], "hidden_size": 32,
  "num_hidden_layers": 4, "vocab_size": 100, "num_attention_heads": 4, "num_key_value_heads": 2,
  "intermediate_size": 48, "attn_layer_period": 4, "attn_layer_offset": 1, "num_experts": 4)";
const std::string kMamba2Model = R"("architectures": ["Mamba2ForCausalLM"], "hidden_size": 32,
  "num_hidden_layers": 2, "num_heads": 4, "head_dim": 16, "n_groups": 2, "state_size": 8,
  "vocab_size": 100)";
const std::string kWithHeads = R"("hidden_size": 32, "num_hidden_layers": 3, "vocab_size": 100,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "mamba_n_heads": 4,
  "mamba_d_state": 8)";
const std::string kBamba =
    R"("architectures": ["BambaForCausalLM"], "attn_layer_indices": [1], )" + kWithHeads;
const std::string kGranite =
    R"("architectures": ["GraniteMoeHybridForCausalLM"], "shared_intermediate_size": 24,
  "layer_types": ["mamba", "attention", "mamba"], )" +
    kWithHeads;
const std::string kFalcon =
    R"("architectures": ["FalconH1ForCausalLM"], "mamba_d_ssm": 64, )" + kWithHeads;
const std::string kNemotron = R"("architectures": ["NemotronHForCausalLM"], "hidden_size": 32,
  "vocab_size": 100, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
  "intermediate_size": 48, "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 8,
  "n_groups": 2, "n_routed_experts": 8, "hybrid_override_pattern": "M-*M-")";

TEST(MambaFamilies, PureModelsNeedNoHeads) {
  const auto config = read(kMamba2Model);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.by_layer, (Mixers{kMamba2, kMamba2}));
  EXPECT_EQ(config->mixers.state_space.inner, 64);
  EXPECT_EQ(config->mixers.state_space.groups, 2);
  EXPECT_TRUE(config->mixers.one_part && has_states(*config));
  EXPECT_FALSE(any_attends(*config));
  EXPECT_EQ(config->context_length, 1 << 20);
  EXPECT_NE(error_of(kMamba2Model, R"("expand": 3)").find("num_heads: 4 heads of 16"),
            std::string::npos)
      << error_of(kMamba2Model, R"("expand": 3)");
  EXPECT_NE(error_of(kMamba2Model, R"("n_groups": 3)").find("n_groups: 3 groups do not divide"),
            std::string::npos);
  EXPECT_NE(error_of(kMamba2Model, R"("rms_norm": false)").find("rms_norm"), std::string::npos);
  EXPECT_NE(error_of(kMamba2Model, R"("hidden_act": "gelu")").find("hidden_act"),
            std::string::npos);
}

TEST(MambaFamilies, TheFirstMambaHasARankOfTimeSteps) {
  const auto config = read(kMambaModel);
  ASSERT_TRUE(config.ok()) << config.status().message();
  const StateSpaceConfig& space = config->mixers.state_space;
  EXPECT_EQ(config->mixers.by_layer, Mixers(2, LayerMixer::kMamba));
  EXPECT_EQ(space.inner, 96);
  EXPECT_EQ(space.dt_rank, 3);
  EXPECT_EQ(space.scan_norms, ScanNorms::kNone);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_FALSE(any_attends(*config));
  EXPECT_EQ(read(kMambaModel, R"("time_step_rank": 7)")->mixers.state_space.dt_rank, 7);
  EXPECT_NE(error_of(kMambaModel, R"("time_step_rank": "all")").find("time_step_rank"),
            std::string::npos);
  std::string falcon = kMambaModel;
  falcon.replace(falcon.find("MambaFor"), 5, "FalconMamba");
  EXPECT_EQ(read(falcon)->mixers.state_space.scan_norms, ScanNorms::kBare);
}

TEST(MambaFamilies, JambasLayersComeRoundByPeriods) {
  const auto config = read(kJamba);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.by_layer,
            (Mixers{LayerMixer::kMamba, kAttention, LayerMixer::kMamba, LayerMixer::kMamba}));
  EXPECT_EQ(config->experts.dense_layers, (std::vector<bool>{true, false, true, false}));
  EXPECT_FALSE(config->mixers.rotates);
  EXPECT_EQ(read(kJamba, R"("num_experts": 1)")->experts.count, 0);
  EXPECT_NE(error_of(kJamba, R"("attn_layer_offset": 5)").find("attn_layer_offset: 5 is not"),
            std::string::npos);
}

TEST(MambaFamilies, TimeStepsHaveLimits) {
  const auto limits = [](const std::string& list) {
    return read(kMamba2Model, R"("time_step_limit": )" + list)->mixers.state_space;
  };
  EXPECT_EQ(limits("[0.01, 0.5]").dt_min, 0.01f);
  EXPECT_EQ(limits("[0.01, 0.5]").dt_max, 0.5f);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(limits(R"([0.0, {"__float__": "Infinity"}])").dt_max, infinity);
  EXPECT_EQ(limits("[0.0, null]").dt_max, infinity);
  for (const char* const list : {"[0.5, 0.1]", "[0.1]", "[-1, 1]", R"(["a", "b"])"}) {
    const std::string error = error_of(kMamba2Model, R"("time_step_limit": )" + std::string(list));
    EXPECT_NE(error.find("time_step_limit"), std::string::npos) << list;
  }
  EXPECT_EQ(without_infinities(R"({"a": [0.0, Infinity, -Infinity, NaN], "Infinity\"": "NaN"})"),
            R"({"a": [0.0, null, null, null], "Infinity\"": "NaN"})");
}

TEST(MambaFamilies, LayersThatAttendAreNamedInManyWays) {
  EXPECT_EQ(read(kBamba)->mixers.by_layer, (Mixers{kMamba2, kAttention, kMamba2}));
  EXPECT_EQ(read(kBamba)->rope_dim, 4);  // half of a head
  EXPECT_EQ(read(kGranite)->mixers.by_layer, (Mixers{kMamba2, kAttention, kMamba2}));
  EXPECT_FALSE(read(kGranite)->mixers.rotates);
  EXPECT_TRUE(read(kGranite, R"("position_embedding_type": "rope")")->mixers.rotates);
  EXPECT_EQ(read(kGranite)->experts.count, 8);
  EXPECT_EQ(read(kGranite, R"("num_local_experts": 0)")->ffn, 24);
  EXPECT_EQ(read(kFalcon)->mixers.by_layer, Mixers(3, LayerMixer::kMamba2Beside));
  const auto nemotron = read(kNemotron);
  ASSERT_TRUE(nemotron.ok()) << nemotron.status().message();
  EXPECT_EQ(nemotron->mixers.by_layer, (Mixers{kMamba2, kNone, kAttention, kMamba2, kNone}));
  EXPECT_EQ(nemotron->layers, 5);
  EXPECT_EQ(nemotron->experts.count, 0);  // no layer is a mixture
  const auto mixtures = read(kNemotron, R"("hybrid_override_pattern": "ME-*E")");
  ASSERT_TRUE(mixtures.ok()) << mixtures.status().message();
  EXPECT_EQ(mixtures->experts.dense_layers, (std::vector<bool>{true, false, true, true, false}));
  EXPECT_EQ(read(kNemotron, R"("layers_block_type": ["mlp", "linear_attention", "full_attention"])")
                ->mixers.by_layer,
            (Mixers{kNone, kMamba2, kAttention}));
}

TEST(MambaFamilies, RefuseByName) {
  const auto expect = [](const std::string& members, const std::string& more,
                         const std::string& part) {
    const std::string error = error_of(members, more);
    EXPECT_NE(error.find(part), std::string::npos) << more << ": " << error;
  };
  expect(kBamba, R"("attn_layer_indices": [3])", "attn_layer_indices");
  expect(kBamba, R"("mamba_d_head": "big")", "mamba_d_head");
  expect(kBamba, R"("mamba_d_head": 8)", "mamba_n_heads: 4 heads of 8");
  expect(kGranite, R"("layer_types": ["mamba", "window", "mamba"])", "layer_types");
  expect(kGranite, R"("position_embedding_type": "alibi")", "position_embedding_type");
  expect(kFalcon, R"("attention_bias": true)", "attention_bias");
  expect(kFalcon, R"("ssm_multipliers": [1, 2])", "ssm_multipliers");
  expect(kFalcon, R"("mlp_multipliers": [0, 2])", "mlp_multipliers");
  expect(kFalcon, R"("mamba_proj_bias": true, "ssm_in_multiplier": 2)", "mamba_proj_bias");
  expect(kNemotron, R"("hybrid_override_pattern": "M-X")", "layer 2 is \"X\"");
  expect(kNemotron, R"("hybrid_override_pattern": "")", "hybrid_override_pattern");
  expect(kNemotron, R"("moe_latent_size": 16)", "moe_latent_size");
  expect(kNemotron, R"("mlp_hidden_act": "silu")", "mlp_hidden_act");
  expect(kNemotron, R"("attention_bias": true)", "attention_bias");
}

const std::string kZamba2 = R"("architectures": ["Zamba2ForCausalLM"], "hidden_size": 32,
  "num_hidden_layers": 3, "vocab_size": 100, "num_attention_heads": 4, "n_mamba_heads": 4,
  "layers_block_type": ["mamba", "hybrid", "linear_attention"])";

TEST(MambaFamilies, SomeOfZamba2sLayersHaveABlock) {
  const auto config = read(kZamba2, R"("num_mem_blocks": 2, "use_mem_rope": true)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.by_layer, (Mixers{kMamba2, LayerMixer::kMamba2Beside, kMamba2}));
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->ffn, 128);
  EXPECT_EQ(config->mixers.state_space.shared.blocks, 2);
  EXPECT_EQ(config->mixers.state_space.shared.rank, 128);
  EXPECT_TRUE(config->mixers.rotates && has_joined_layers(*config));
  EXPECT_FLOAT_EQ(config->mixers.state_space.dt_min, 0.001f);
  const auto expect = [](const std::string& more, const std::string& said) {
    EXPECT_EQ(error_of(kZamba2, more), "config.json: " + said);
  };
  expect(R"("use_long_context": true)", "use_long_context: true is not supported, only false");
  expect(R"("num_mem_blocks": 0)", "num_mem_blocks: is no number from 1 to 64");
  expect(R"("layers_block_type": null)", "layers_block_type: missing");
  expect(R"("layers_block_type": ["mamba"])", "layers_block_type: is no list of 3 layers");
  expect(R"("layers_block_type": ["mamba", "hybrid", "attention"])",
         "layers_block_type: has a layer that is not supported (known: mamba, linear_attention, "
         "hybrid)");
  expect(R"("attention_head_dim": 8)",
         "attention_head_dim: 4 heads of 8 are not 64 wide, as two rows are");
}

}  // namespace
}  // namespace headrace::mamba_families_test
