// What files of the kin of older families say beside numbers of one name.
#include "weights/kin_families.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "weights/minimax_family.h"

namespace headrace::kin_families_test {
namespace {

Result<ModelConfig> config_of(const std::string& hf_class, const std::string& more) {
  const std::string text = R"({"architectures": [")" + hf_class + R"("], "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
      "num_key_value_heads": 4, "vocab_size": 96, "max_position_embeddings": 64)" +
                           more + "}";
  return model_config_from_json(parse_json(text).value(), Json(), "config.json");
}

std::string error_of(const std::string& hf_class, const std::string& more) {
  const auto config = config_of(hf_class, more);
  EXPECT_FALSE(config.ok());
  return config.ok() ? "" : std::string(config.status().message());
}

using Layers = std::vector<bool>;

TEST(KinFamilies, LayersOfMiniMaxAttendByName) {
  const auto attends = [](const ModelConfig& config) {
    Layers layers;
    for (int32_t i = 0; i < config.layers; ++i) {
      layers.push_back(config.mixers.of(i) == LayerMixer::kAttention);
    }
    return layers;
  };
  EXPECT_EQ(attends(*config_of("MiniMaxForCausalLM", "")), Layers({true, false, true, false}));
  const auto of_the_hub = config_of("MiniMaxM1ForCausalLM", R"(, "attn_type_list": [0, 0, 0, 1],
      "layernorm_mlp_alpha": 3.5, "postnorm": true, "shared_intermediate_size": [0])");
  ASSERT_TRUE(of_the_hub.ok()) << of_the_hub.status().message();
  EXPECT_EQ(attends(*of_the_hub), Layers({false, false, false, true}));
  EXPECT_EQ(of_the_hub->mixers.minimax.added.network_rows, 3.5f);
  EXPECT_EQ(error_of("MiniMaxForCausalLM", R"(, "layer_types": ["full_attention"])"),
            "config.json: layer_types: is no list of 4 layers");
  EXPECT_EQ(error_of("MiniMaxM1ForCausalLM", R"(, "attn_type_list": [0, 0, 0, 2])"),
            "config.json: attn_type_list: has a layer that is not supported (known: "
            "full_attention, linear_attention)");
  EXPECT_EQ(error_of("MiniMaxM1ForCausalLM", R"(, "postnorm": false)"),
            "config.json: postnorm: is not supported, only true or none");
  EXPECT_EQ(error_of("MiniMaxM1ForCausalLM", R"(, "shared_intermediate_size": [8])"),
            "config.json: shared_intermediate_size: is not supported, only 0 or none");
}

TEST(KinFamilies, MiniMaxM3sLayersAreListedInTwoSpellings) {
  const std::string name = "MiniMaxM3VLForCausalLM";
  const std::string index = R"(, "head_dim": 16, "rotary_dim": 8, "index_n_heads": 4,
      "index_head_dim": 12, "index_block_size": 4, "index_topk_blocks": 3, "layer_types":
      ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse", "full_attention"])";
  const auto config = config_of(name, index + R"(, "mlp_layer_types": ["dense", "sparse", "sparse",
      "sparse"], "dense_intermediate_size": 96, "swiglu_alpha": 1.5)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const BlockIndexConfig& own = config->mixers.minimax.block_index;
  EXPECT_EQ(own.layers, Layers({false, true, true, false}));
  EXPECT_EQ(own.tokens * own.top + own.local, 13);
  EXPECT_EQ(config->experts.dense_layers, Layers({true, false, false, false}));
  EXPECT_EQ(config->ffn, 96);
  EXPECT_EQ(config->experts.width, 48);
  EXPECT_EQ(config->experts.gate_slope, 1.5f);
  EXPECT_EQ(config->rope_dim, 8);
  const auto of_the_hub = config_of(name, R"(, "head_dim": 16, "partial_rotary_factor": 0.5,
      "hidden_act": "swigluoai", "moe_layer_freq": [0, 1, 1, 1], "sparse_attention_config": {
      "sparse_num_index_heads": 4, "sparse_index_dim": 12, "sparse_block_size": 4,
      "sparse_topk_blocks": 3, "sparse_local_block": 1, "sparse_attention_freq": [0, 1, 1, 0]})");
  ASSERT_TRUE(of_the_hub.ok()) << of_the_hub.status().message();
  EXPECT_EQ(of_the_hub->mixers.minimax.block_index.layers, own.layers);
  EXPECT_EQ(of_the_hub->mixers.minimax.block_index.dim, own.dim);
  EXPECT_EQ(of_the_hub->experts.dense_layers, config->experts.dense_layers);
  EXPECT_EQ(of_the_hub->rope_dim, 8);
  const auto wrong = [&](const std::string& member, const std::string& in_its_place) {
    std::string changed = index;
    changed.replace(changed.find(member), member.size(), in_its_place);
    return error_of(name, changed);
  };
  EXPECT_EQ(wrong(R"("index_n_heads": 4)", R"("index_n_heads": 2)"),
            "config.json: index_n_heads: 2 is not supported, only one for each of 4 key heads");
  EXPECT_EQ(wrong(R"("index_head_dim": 12)", R"("index_head_dim": 6)"),
            "config.json: index_head_dim: 6 is not supported, only the 8 that rotate or more");
  EXPECT_EQ(
      wrong(R"("index_topk_blocks": 3)", R"("index_topk_blocks": 3, "index_local_blocks": 4)"),
      "config.json: index_local_blocks: 4 are more than 3 in all");
  EXPECT_EQ(wrong(R"("index_block_size": 4)", R"("index_block_size": 65536)"),
            "config.json: index_topk_blocks: 3 of 65536 keys are more than 65536");
  EXPECT_EQ(wrong(R"("rotary_dim": 8)", R"("rotary_dim": 8, "partial_rotary_factor": 0.25)"),
            "config.json: rotary_dim: 8 is not the share of a head of 16 that "
            "partial_rotary_factor says: leave one of both out");
  EXPECT_EQ(error_of(name, R"(, "layer_types": ["full_attention"])"),
            "config.json: layer_types: is no list of 4 layers");
  EXPECT_EQ(error_of(name, R"(, "moe_layer_freq": [0, 1, 2, 1])"),
            "config.json: moe_layer_freq: has a layer that is not supported (known: 0, 1)");
}

TEST(KinFamilies, Cohere2MoesLayersFollowTwoPeriods) {
  const auto config = config_of("Cohere2MoeForCausalLM", R"(, "first_k_dense_replace": 1,
      "sliding_window_pattern": 2, "prefix_dense_intermediate_size": 40, "rms_norm_eps": null)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->sliding_layers, Layers({false, true, false, true}));
  EXPECT_EQ(config->rope_layers, Layers({true, true, false, true}));
  EXPECT_EQ(config->ffn, 40);
  EXPECT_EQ(config->experts.width, 48);
  EXPECT_TRUE(config->experts.averaged);
  EXPECT_FALSE(config->mixers.rms_norms);
  EXPECT_EQ(error_of("Cohere2MoeForCausalLM", R"(, "expert_selection_fn": "tanh")"),
            "config.json: expert_selection_fn: only \"softmax\" and \"sigmoid\" are supported");
  EXPECT_EQ(error_of("Cohere2MoeForCausalLM", R"(, "sliding_window_pattern": 0)"),
            "config.json: sliding_window_pattern: is no number from 1 to 1048576");
}

// Layers that draft stand behind the others in a file, and are not read.
TEST(KinFamilies, DraftingLayersAreKnown) {
  for (const char* hf_class : {"HYV3ForCausalLM", "Cohere2MoeForCausalLM"}) {
    const auto config = config_of(hf_class, R"(, "num_nextn_predict_layers": 1)");
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->layers, 4);
    EXPECT_EQ(config->mixers.drafting_layers, 1);
  }
}

TEST(KinFamilies, GraniteHasABaseOfEachLayer) {
  const auto config =
      config_of("GraniteSWAForCausalLM", R"(, "layer_rope_theta": [0, 500, 1e4, 1e4])");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.rope_thetas, std::vector<double>({0, 500, 1e4, 1e4}));
  EXPECT_EQ(config->sliding_layers, Layers({false, true, true, true}));
  for (const char* list : {"[0, 500, 1e4]", "[0, 500, 1e4, -1]", "7"}) {
    EXPECT_EQ(error_of("GraniteSWAForCausalLM", std::string(R"(, "layer_rope_theta": )") + list),
              "config.json: layer_rope_theta: is no list of 4 numbers, 0 or from 1 to 1e12");
  }
}

TEST(KinFamilies, NumbersOfMiniCpm3AreOfLayersAndWidth) {
  const auto config = config_of("MiniCPM3ForCausalLM", R"(, "kv_lora_rank": 16, "scale_depth": 1.4,
      "dim_model_base": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FLOAT_EQ(config->residual_scale, 0.7f);
  EXPECT_FLOAT_EQ(config->logit_divisor, 4);
  EXPECT_EQ(config->mixers.latent.value_dim, 8);
  const auto plain = config_of("MiniCPM3ForCausalLM", R"(, "kv_lora_rank": 16,
      "scale_depth": null, "dim_model_base": null, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6)");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->residual_scale, 1);
  EXPECT_EQ(plain->logit_divisor, 1);
}

TEST(KinFamilies, EmbeddingsAreScaledWhereAFileSaysSo) {
  const auto scale = [](const char* hf_class, const char* more) {
    return config_of(hf_class, more)->embedding_scale;
  };
  EXPECT_EQ(scale("AfmoeForCausalLM", ""), 0);
  EXPECT_FLOAT_EQ(scale("AfmoeForCausalLM", R"(, "mup_enabled": true)"), std::sqrt(32.0f));
  EXPECT_FLOAT_EQ(scale("BioGptForCausalLM", ""), std::sqrt(32.0f));
  EXPECT_EQ(scale("BioGptForCausalLM", R"(, "scale_embedding": false)"), 0);
  EXPECT_EQ(error_of("AfmoeForCausalLM", R"(, "mup_enabled": 1)"),
            "config.json: mup_enabled: is integer, expected a boolean");
}

TEST(KinFamilies, JapaneseNetworksAreSoManyTimesAsWide) {
  EXPECT_EQ(config_of("GPTNeoXJapaneseForCausalLM", R"(, "intermediate_multiple_size": 2)")->ffn,
            64);
  EXPECT_EQ(config_of("GPTNeoXJapaneseForCausalLM", "")->ffn, 128);
  EXPECT_EQ(error_of("GPTNeoXJapaneseForCausalLM", R"(, "intermediate_multiple_size": 0)"),
            "config.json: intermediate_multiple_size: 0 gives no width");
}

TEST(KinFamilies, LlamaHasOtherNamesOfItsClass) {
  const auto plain = config_of("IQuestCoderForCausalLM", "");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->architecture, "llama");
  EXPECT_EQ(plain->head_dim, 128);
  EXPECT_EQ(error_of("IQuestCoderForCausalLM", R"(, "clip_qkv": 8)"),
            "config.json: clip_qkv: is not supported, only null");
  const auto biased = config_of("InternLM3ForCausalLM", R"(, "qkv_bias": true, "bias": true)");
  ASSERT_TRUE(biased.ok()) << biased.status().message();
  EXPECT_TRUE(biased->qkv_bias && biased->attention_out_bias && biased->ffn_bias);
  const auto of_queries = config_of("InternLM3ForCausalLM", R"(, "qkv_bias": true)");
  EXPECT_TRUE(of_queries->qkv_bias);
  EXPECT_FALSE(of_queries->attention_out_bias || of_queries->ffn_bias);
}

// Of a text half that a file wraps.
Result<ModelConfig> config_of_text(const std::string& hf_class, const std::string& outer,
                                   const std::string& inner) {
  const std::string text = R"({"architectures": [")" + hf_class + "\"]" + outer +
                           R"(, "text_config": {"hidden_size": 32, "intermediate_size": 48,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 96)" +
                           inner + "}}";
  return model_config_from_json(parse_json(text).value(), Json(), "config.json");
}

TEST(KinFamilies, GlmsThatSeeRotateTheShareThatTheySay) {
  const auto config = config_of_text("Glm4vForConditionalGeneration", "", R"(, "rope_scaling":
      {"type": "default", "mrope_section": [1, 1, 2]}, "partial_rotary_factor": 0.5)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "glm4");
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->rope_dim, 4);
  EXPECT_EQ(config->context_length, 32768);
  EXPECT_TRUE(config->qkv_bias && config->fused.gate_up);
  EXPECT_EQ(config_of_text("Glm4vForConditionalGeneration", "", "")->rope_dim, 8);
  const auto mixture = config_of_text("Glm4vMoeForConditionalGeneration", "", R"(, "head_dim": 16,
      "use_qk_norm": true)");
  ASSERT_TRUE(mixture.ok()) << mixture.status().message();
  EXPECT_EQ(mixture->architecture, "glm4moe");
  EXPECT_EQ(mixture->rope_dim, 8);
  EXPECT_TRUE(mixture->qkv_bias);
  EXPECT_FALSE(mixture->mixers.head_norms.has_value());
}

// transformers: outside true has the last word; of Qwen 3 VL nothing else counts.
TEST(KinFamilies, EmbeddingsAreTiedOutsideOfATextHalf) {
  const auto ties = [](const char* hf_class, const char* outer, const char* inner) {
    const auto key = [](const char* value) {
      return *value == 0 ? "" : std::string(R"(, "tie_word_embeddings": )") + value;
    };
    return config_of_text(hf_class, key(outer), key(inner))->tied_embeddings;
  };
  for (const char* inner : {"", "false", "true"}) {
    const bool says_so = std::string_view(inner) == "true";
    for (const char* hf_class :
         {"Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration"}) {
      EXPECT_EQ(ties(hf_class, "", inner), says_so);
      EXPECT_EQ(ties(hf_class, "false", inner), says_so);
      EXPECT_TRUE(ties(hf_class, "true", inner));
    }
    for (const char* hf_class :
         {"Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"}) {
      EXPECT_FALSE(ties(hf_class, "", inner));
      EXPECT_FALSE(ties(hf_class, "false", inner));
      EXPECT_TRUE(ties(hf_class, "true", inner));
    }
  }
}

// Other classes' keys, which these do not read.
TEST(KinFamilies, ApertusKnowsNoWindow) {
  for (const char* hf_class : {"ApertusForCausalLM", "Apertus1p5TextForCausalLM"}) {
    const auto plain = config_of(hf_class, "");
    const auto more = config_of(
        hf_class, R"(, "sliding_window": 5, "rotary_dim": 4, "query_pre_attn_scalar": 3)");
    ASSERT_TRUE(plain.ok() && more.ok()) << more.status().message();
    EXPECT_EQ(more->window, 0);
    EXPECT_EQ(more->rope_dim, plain->rope_dim);
    EXPECT_EQ(more->attention_scale, plain->attention_scale);
  }
}

TEST(KinFamilies, ApertusMayHaveFewerOutputsThanTokens) {
  const auto config = config_of("Apertus1p5TextForCausalLM", R"(, "output_vocab_size": 80)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "apertus");
  EXPECT_EQ(config->head.tokens, 80);
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(config_of("Apertus1p5TextForCausalLM", R"(, "output_vocab_size": null)")->head.tokens,
            0);
  const auto wrapped =
      config_of_text("Apertus1p5ForConditionalGeneration", "", R"(, "output_vocab_size": 71)");
  ASSERT_TRUE(wrapped.ok()) << wrapped.status().message();
  EXPECT_EQ(wrapped->head.tokens, 71);
  EXPECT_EQ(error_of("Apertus1p5TextForCausalLM", R"(, "output_vocab_size": 97)"),
            "config.json: output_vocab_size: 97 of 96 tokens");
  EXPECT_EQ(error_of("Apertus1p5TextForCausalLM",
                     R"(, "output_vocab_size": 80, "tie_word_embeddings": true)"),
            "config.json: output_vocab_size: is not supported beside tie_word_embeddings");
}

TEST(KinFamilies, SarvamHasOtherNamesForGlmsNumbers) {
  const auto config = config_of("SarvamMoEForCausalLM", R"(, "num_experts": 8,
      "num_shared_experts": 2, "use_qkv_bias": true, "use_qk_norm": false, "n_group": null)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->experts.count, 8);
  EXPECT_EQ(config->experts.shared_count, 2);
  EXPECT_TRUE(config->qkv_bias && config->fused.qkv);
  EXPECT_FALSE(config->mixers.head_norms.value_or(true));
  EXPECT_EQ(config->experts.groups, 1);
}

}  // namespace
}  // namespace headrace::kin_families_test
