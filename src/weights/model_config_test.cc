#include "weights/model_config.h"
#include "weights/model_family.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "weights/gguf_fixture.h"

namespace headrace::model_config_test {
namespace {

constexpr std::string_view kLlamaConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576,
  "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
  "num_key_value_heads": 3, "rms_norm_eps": 1e-05, "rope_theta": 100000, "vocab_size": 49152,
  "max_position_embeddings": 8192, "tie_word_embeddings": true, "hidden_act": "silu",
  "rope_scaling": null, "attention_bias": false, "eos_token_id": 2})";

Result<ModelConfig> from_json(const Json& config, std::string_view generation = "null") {
  return model_config_from_json(config, *parse_json(generation), "config.json");
}
Json llama_config() { return *parse_json(kLlamaConfig); }

TEST(ModelConfig, FromGguf) {
  const std::string data = tiny_llama().build();
  auto file = GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "t.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  auto config = model_config_from_gguf(**file);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->hidden, 32);
  EXPECT_EQ(config->layers, 1);
  EXPECT_EQ(config->heads, 2);
  EXPECT_EQ(config->kv_heads, 1);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->ffn, 64);
  EXPECT_EQ(config->vocab, 264);
  EXPECT_EQ(config->context_length, 128);
  EXPECT_EQ(config->rope_dim, 16);
  EXPECT_FLOAT_EQ(config->rms_eps, 1e-5f);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_TRUE(config->qk_rows_interleaved);
  EXPECT_EQ(config->end_ids, (std::vector<int32_t>{2}));
}

// "LlamaModel" and "LlamaForSequenceClassification" are the Llama that generates but for what
// stands behind its layers.
TEST(ModelConfig, ClassesWithoutAnOutputMatrix) {
  const auto of_class = [](std::string_view name, const char* key = "x", const Json& value = {}) {
    Json config = llama_config();
    config.set("architectures", Json(Json::Array{Json(std::string(name))})).set(key, value);
    config.set("tie_word_embeddings", false);
    return from_json(config);
  };
  EXPECT_TRUE(of_class("LlamaForCausalLM")->head.generates());
  const auto base = of_class("LlamaModel");
  ASSERT_TRUE(base.ok()) << base.status().message();
  EXPECT_EQ(base->architecture, "llama");
  EXPECT_FALSE(base->head.matrix);
  EXPECT_EQ(base->head.classes, 0);
  EXPECT_TRUE(base->tied_embeddings);  // no file of it has an output matrix
  constexpr std::string_view kClassifier = "LlamaForSequenceClassification";
  EXPECT_EQ(of_class(kClassifier)->head.classes, 2);
  EXPECT_EQ(of_class(kClassifier, "num_labels", 1)->head.classes, 1);
  EXPECT_EQ(
      of_class(kClassifier, "id2label", *parse_json(R"({"0":"a","1":"b","2":"c"})"))->head.classes,
      3);
  EXPECT_FALSE(of_class(kClassifier, "id2label", Json::object()).ok());
  EXPECT_FALSE(of_class(kClassifier, "num_labels", 0).ok());
  EXPECT_FALSE(of_class("OtherModel").ok());
}

TEST(ModelConfig, F16HoldsActivationsOfKnownFamiliesOnly) {
  const auto fits = [](std::string_view architecture) {
    ModelConfig config;
    config.architecture = architecture;
    return activations_fit_f16(config);
  };
  EXPECT_TRUE(fits("qwen2"));
  EXPECT_TRUE(fits("llama"));
  EXPECT_FALSE(fits("gemma3"));  // its residual passes F16's largest number
  EXPECT_FALSE(fits("unknown"));
}

TEST(ModelConfig, GgufDefaultsAndSeparateOutput) {
  GgufBuilder builder = tiny_llama();
  builder.remove("llama.attention.head_count_kv")
      .remove("llama.rope.freq_base")
      .remove("llama.rope.dimension_count");
  builder.remove("llama.vocab_size").add_u32("llama.attention.key_length", 32);
  builder.add_u32("tokenizer.ggml.eot_token_id", 0).add_tensor("output.weight", {32, 264}, 0);
  const std::string data = builder.build();
  auto file = GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "t.gguf");
  auto config = model_config_from_gguf(**file);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->rope_dim, 32);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_EQ(config->vocab, 264);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_EQ(config->end_ids, (std::vector<int32_t>{0, 2}));
}

TEST(ModelConfig, FromJson) {
  auto config = from_json(llama_config(), R"({"eos_token_id": [2, 0]})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->hidden, 576);
  EXPECT_EQ(config->layers, 30);
  EXPECT_EQ(config->heads, 9);
  EXPECT_EQ(config->kv_heads, 3);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->ffn, 1536);
  EXPECT_EQ(config->vocab, 49152);
  EXPECT_EQ(config->context_length, 8192);
  EXPECT_EQ(config->rope_theta, 100000);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_FALSE(config->qk_rows_interleaved);
  EXPECT_EQ(config->end_ids, (std::vector<int32_t>{0, 2}));
}

TEST(ModelConfig, HeadDimNeedNotDivideHidden) {
  auto config = from_json(llama_config()
                              .set("head_dim", 128)
                              .set("rope_scaling", *parse_json(R"({"rope_type": "default"})")));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_EQ(config->rope_dim, 128);
}

struct BadField {
  const char* field;
  const char* value;  // JSON
  const char* expected;
};

TEST(ModelConfig, JsonErrorsNameFileAndField) {
  const BadField cases[] = {
      {"hidden_size", "0", "hidden_size: 0 is outside"},
      {"hidden_size", "-576", "hidden_size: -576 is outside"},
      {"hidden_size", "1e30", "hidden_size: is number, expected an integer"},
      {"hidden_size", "\"576\"", "hidden_size: is string, expected an integer"},
      {"hidden_size", "null", "hidden_size: missing"},
      {"hidden_size", "577", "num_attention_heads: 9 heads do not divide the hidden size 577"},
      {"num_hidden_layers", "1025", "num_hidden_layers: 1025 is outside 1 to 1024"},
      {"num_key_value_heads", "4", "num_key_value_heads: 4 key/value heads do not divide 9"},
      {"head_dim", "63", "head_dim: head size 63 is odd"},
      {"rms_norm_eps", "2", "rms_norm_eps: 2 is not between"},
      {"rms_norm_eps", "\"x\"", "rms_norm_eps: is string, expected a number"},
      {"rope_theta", "-1", "rope_theta: -1 is not between"},
      {"tie_word_embeddings", "1", "tie_word_embeddings: is integer, expected a boolean"},
      {"eos_token_id", "49152", "eos_token_id: 49152 is no id of a vocabulary of 49152"},
      {"eos_token_id", "[1, \"2\"]", "eos_token_id: is string, expected an integer or a list"},
      {"architectures", "[\"RwkvForCausalLM\"]",
       "architectures: \"RwkvForCausalLM\" is not supported"},
      {"architectures", "\"LlamaForCausalLM\"", "architectures: is no list of names"},
      {"architectures", "null", "architectures: missing"},
      {"hidden_act", "\"gelu\"", "hidden_act: only \"silu\""},
      {"rope_scaling", "{\"rope_type\": \"spiral\"}", "rope_scaling: rope type \"spiral\""},
      {"rope_scaling", "{\"type\": \"linear\", \"factor\": 0.5}",
       "rope_scaling: factor 0.5 is not"},
      {"rope_scaling", "{\"type\": \"longrope\"}", "short_factor: missing"},
      {"rope_scaling", "{\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1]}",
       "rope_scaling: 1 factors for 32 frequencies"},
      {"rope_parameters", "{\"rope_type\": \"yarn\", \"beta_fast\": 0}", "rope_scaling: beta_fast"},
      {"rope_parameters", "{\"rope_theta\": -1}", "rope_theta: -1 is not between"},
      {"partial_rotary_factor", "1.5", "partial_rotary_factor: 1.5 is not between"},
      {"attention_bias", "1", "attention_bias: is integer, expected a boolean"},
      {"num_local_experts", "8", "num_local_experts: mixtures of experts"},
      {"sliding_window", "-5", "sliding_window: -5 is outside"},
  };
  for (const BadField& bad : cases) {
    const Status status = from_json(llama_config().set(bad.field, *parse_json(bad.value))).status();
    EXPECT_EQ(status.message().rfind(std::string("config.json: ") + bad.expected, 0), 0u)
        << bad.field << " " << bad.value << ": " << status.message();
  }
  EXPECT_EQ(from_json(Json(3)).status().message(), "config.json: config: is no JSON object");
}

TEST(ModelConfig, ReadsAFolder) {
  const std::filesystem::path folder = testing::TempDir() + "/model_config_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kLlamaConfig;
  std::ofstream(folder / "generation_config.json") << R"({"eos_token_id": 7})";
  for (const auto& path : {folder, folder / "config.json"}) {
    auto config = model_config_from_file(path.string());
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->end_ids, (std::vector<int32_t>{2, 7}));
  }
  std::ofstream(folder / "generation_config.json") << "{";
  EXPECT_NE(
      model_config_from_file(folder.string()).status().message().find("generation_config.json"),
      std::string::npos);
  EXPECT_FALSE(model_config_from_file("/nowhere").ok());
}

// ---- Hugging Face families, in the spellings of transformers 4 and 5 ----

// The members that every class needs.
Json sizes_of(std::string_view hf_class) {
  Json config = *parse_json(R"({"hidden_size": 64, "intermediate_size": 128, "vocab_size": 96,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2})");
  return config.set("architectures", Json::array().push(hf_class));
}
ModelConfig read(const Json& config) {
  auto read = from_json(config);
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok() ? *read : ModelConfig{};
}
Json json(std::string_view text) { return *parse_json(text); }

TEST(HuggingFaceConfig, RopeScalingsInBothSpellings) {
  using Kind = RopeScaling::Kind;
  const std::string_view yarn = R"("factor": 4.0, "original_max_position_embeddings": 32,
    "beta_fast": 16, "attention_factor": 1.5)";
  const ModelConfig old =
      read(sizes_of("LlamaForCausalLM")
               .set("rope_theta", 5e5)
               .set("rope_scaling", json("{\"type\": \"yarn\", " + std::string(yarn) + "}")));
  const ModelConfig now =
      read(sizes_of("LlamaForCausalLM")
               .set("rope_parameters", json("{\"rope_type\": \"yarn\", \"rope_theta\": 5e5, " +
                                            std::string(yarn) + "}")));
  for (const ModelConfig& config : {old, now}) {
    EXPECT_EQ(config.rope_theta, 5e5);
    EXPECT_EQ(config.rope_scaling.kind, Kind::kYarn);
    EXPECT_EQ(config.rope_scaling.factor, 4);
    EXPECT_EQ(config.rope_scaling.original_context, 32);
    EXPECT_EQ(config.rope_scaling.beta_fast, 16);
    EXPECT_EQ(config.rope_scaling.beta_slow, 1);
    EXPECT_EQ(config.rope_scaling.attention_factor, 1.5);
  }
  const ModelConfig dynamic = read(sizes_of("LlamaForCausalLM")
                                       .set("max_position_embeddings", 1000)
                                       .set("rope_scaling", json(R"({"type": "dynamic",
                                                                     "factor": 2.5})")));
  EXPECT_EQ(dynamic.context_length, 1000);
  EXPECT_EQ(dynamic.context_length_max, 2500);
  EXPECT_EQ(old.context_length_max, old.context_length);
  // Where the file does not say the original context, it is the context.
  const ModelConfig llama3 = read(sizes_of("LlamaForCausalLM")
                                      .set("max_position_embeddings", 4096)
                                      .set("rope_scaling", json(R"({"rope_type": "llama3",
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0})")));
  EXPECT_EQ(llama3.rope_scaling.kind, Kind::kLlama3);
  EXPECT_EQ(llama3.rope_scaling.original_context, 4096);
  const std::string_view growth = R"({"rope_type": "yarn", "factor": null,
    "original_max_position_embeddings": 128})";
  EXPECT_EQ(read(sizes_of("LlamaForCausalLM")
                     .set("max_position_embeddings", 1024)
                     .set("rope_scaling", json(growth)))
                .rope_scaling.factor,
            8);
}

TEST(HuggingFaceConfig, WindowsAndTheirSwitches) {
  EXPECT_EQ(read(sizes_of("MistralForCausalLM")).window, 4096);  // the class's default
  EXPECT_EQ(read(sizes_of("MistralForCausalLM").set("sliding_window", nullptr)).window, 0);
  const Json qwen = sizes_of("Qwen2ForCausalLM").set("sliding_window", 32);
  EXPECT_EQ(read(qwen).window, 0);  // off unless switched on
  const ModelConfig on =
      read(Json(qwen).set("use_sliding_window", true).set("max_window_layers", 3));
  EXPECT_EQ(on.window, 32);
  EXPECT_EQ(on.sliding_layers, (std::vector<bool>{false, false, false, true}));
  const ModelConfig typed =
      read(Json(qwen)
               .set("use_sliding_window", true)
               .set("layer_types", json(R"(["sliding_attention", "full_attention",
                                            "full_attention", "sliding_attention"])")));
  EXPECT_EQ(typed.sliding_layers, (std::vector<bool>{true, false, false, true}));
  const auto of_mixture = [](const char* name) {
    return read(sizes_of(name)
                    .set("sliding_window", 32)
                    .set("use_sliding_window", true)
                    .set("max_window_layers", 3))
        .sliding_layers;
  };
  EXPECT_EQ(of_mixture("Qwen2MoeForCausalLM"), (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(of_mixture("Qwen3MoeForCausalLM"), std::vector<bool>());
  const Status chunked =
      from_json(sizes_of("MistralForCausalLM")
                    .set("layer_types", json(R"(["chunked_attention", "full_attention",
                                                 "full_attention", "full_attention"])")))
          .status();
  EXPECT_EQ(chunked.code(), StatusCode::kUnsupported);
  EXPECT_NE(chunked.message().find("layer_types: \"chunked_attention\""), std::string::npos);
  EXPECT_NE(from_json(sizes_of("MistralForCausalLM").set("layer_types", json("[]")))
                .status()
                .message()
                .find("layer_types: 0 entries for 4 layers"),
            std::string::npos);
}

TEST(HuggingFaceConfig, Gemma2) {
  const ModelConfig assumed = read(sizes_of("Gemma2ForCausalLM"));
  EXPECT_EQ(assumed.attention_soft_cap, 50);
  EXPECT_EQ(assumed.logit_soft_cap, 30);
  EXPECT_EQ(assumed.head_dim, 256);
  EXPECT_EQ(assumed.attention_scale, 1.0f / 16);
  EXPECT_TRUE(assumed.tied_embeddings);
  const ModelConfig said = read(sizes_of("Gemma2ForCausalLM")
                                    .set("attn_logit_softcapping", nullptr)
                                    .set("query_pre_attn_scalar", 144)
                                    .set("head_dim", 32)
                                    .set("hidden_activation", "gelu_pytorch_tanh"));
  EXPECT_EQ(said.attention_soft_cap, 0);
  EXPECT_FLOAT_EQ(said.attention_scale, 1.0f / 12);
  EXPECT_EQ(said.head_dim, 32);
}

TEST(HuggingFaceConfig, Gemma3AloneAndInsideAModelThatSees) {
  const Json old = sizes_of("Gemma3ForCausalLM")
                       .set("rope_theta", 2e6)
                       .set("rope_local_base_freq", 20000)
                       .set("sliding_window", 64)
                       .set("sliding_window_pattern", 2)
                       .set("_sliding_window_pattern", 6)
                       .set("rope_scaling", json(R"({"rope_type": "linear", "factor": 8})"));
  const Json now = sizes_of("Gemma3ForCausalLM")
                       .set("sliding_window", 64)
                       .set("layer_types", json(R"(["sliding_attention", "full_attention",
                                                    "sliding_attention", "full_attention"])"))
                       .set("rope_parameters", json(R"({
      "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 2e6},
      "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}})"));
  const Json nested = json(R"({"architectures": ["Gemma3ForConditionalGeneration"],
                               "vision_config": {"hidden_size": 9}, "eos_token_id": [1, 7]})")
                          .set("text_config", Json(old).set("eos_token_id", 1));
  for (const Json& file : {old, now, nested}) {
    const ModelConfig config = read(file);
    EXPECT_EQ(config.architecture, "gemma3");
    EXPECT_EQ(config.hidden, 64);
    EXPECT_EQ(config.rope_theta, 2e6);
    EXPECT_EQ(config.rope_theta_local, 2e4);
    EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kLinear);
    EXPECT_EQ(config.window, 64);
    EXPECT_EQ(config.sliding_layers, (std::vector<bool>{true, false, true, false}));
  }
  EXPECT_EQ(read(nested).end_ids, (std::vector<int32_t>{1, 7}));
  // The published 4B file says little of its text model.
  const ModelConfig assumed = read(json(R"({"architectures": ["Gemma3ForConditionalGeneration"],
      "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}})"));
  EXPECT_EQ(assumed.heads, 8);
  EXPECT_EQ(assumed.kv_heads, 4);
  EXPECT_EQ(assumed.vocab, 262208);
}

TEST(HuggingFaceConfig, Phi3PartsOfHeadsAndTwoLists) {
  const Json config =
      sizes_of("Phi3ForCausalLM")
          .set("partial_rotary_factor", 0.75)
          .set("original_max_position_embeddings", 32)
          .set("rope_scaling", json(R"({"type": "su", "short_factor": [1, 1, 1, 1, 1, 1],
                                        "long_factor": [1, 2, 3, 4, 5, 6]})"));
  const ModelConfig phi = read(config);
  EXPECT_EQ(phi.rope_dim, 12);
  EXPECT_EQ(phi.rope_scaling.kind, RopeScaling::Kind::kLongRope);
  EXPECT_EQ(phi.rope_scaling.original_context, 32);
  EXPECT_EQ(phi.rope_scaling.long_factors.back(), 6);
  EXPECT_TRUE(phi.fused.qkv && phi.fused.gate_up);
}

// The numbers of LFM2-350M, of which the network has two thirds of the width, rounded up.
TEST(HuggingFaceConfig, LayersThatDoNotAttend) {
  using enum LayerMixer;
  const auto layers = [](const char* text) { return json(text); };
  const Json lfm2 = sizes_of("Lfm2ForCausalLM")
                        .set("num_hidden_layers", 4)
                        .set("norm_eps", 1e-5)
                        .set("intermediate_size", 6656);
  const ModelConfig listed = read(Json(lfm2).set("full_attn_idxs", layers("[2]")));
  EXPECT_EQ(listed.mixers.by_layer, (std::vector{kShortConv, kShortConv, kAttention, kShortConv}));
  EXPECT_EQ(listed.ffn, 4608);
  EXPECT_EQ(listed.mixers.conv_taps, 3);
  EXPECT_TRUE(has_states(listed) && listed.tied_embeddings);
  const Json named =
      Json(lfm2)
          .set("layer_types", layers(R"(["conv", "full_attention", "conv", "conv"])"))
          .set("block_auto_adjust_ff_dim", false)
          .set("tie_embedding", false);
  EXPECT_EQ(read(named).mixers.of(1), kAttention);
  EXPECT_EQ(read(named).ffn, 6656);
  EXPECT_FALSE(read(named).tied_embeddings);

  const ModelConfig qwen = read(sizes_of("Qwen3_5ForCausalLM").set("num_hidden_layers", 4));
  EXPECT_EQ(qwen.mixers.by_layer, (std::vector{kDeltaNet, kDeltaNet, kDeltaNet, kAttention}));
  EXPECT_TRUE(qwen.mixers.gated_attention && qwen.mixers.rate_is_log);
  EXPECT_FALSE(qwen.mixers.tensors_by_head);
  EXPECT_EQ(qwen.rope_dim, qwen.head_dim / 4);
  const ModelConfig next = read(sizes_of("Qwen3NextForCausalLM")
                                    .set("num_hidden_layers", 4)
                                    .set("full_attention_interval", 2)
                                    .set("linear_num_value_heads", 16));
  EXPECT_EQ(next.mixers.by_layer, (std::vector{kDeltaNet, kAttention, kDeltaNet, kAttention}));
  EXPECT_TRUE(next.mixers.tensors_by_head);
  EXPECT_EQ(next.mixers.value_heads, 16);

  const auto refusal = [](const Json& config) {
    return std::string(from_json(config).status().message());
  };
  EXPECT_NE(refusal(Json(lfm2).set("conv_bias", true)).find("conv_bias"), std::string::npos);
  EXPECT_NE(refusal(Json(lfm2).set("full_attn_idxs", layers("[4]"))).find("none of 4 layers"),
            std::string::npos);
  EXPECT_FALSE(any_attends(*from_json(Json(lfm2).set("full_attn_idxs", layers("[]")))));
  EXPECT_NE(refusal(Json(named).set("layer_types", layers(R"(["mamba", "conv", "conv", "conv"])")))
                .find("mamba"),
            std::string::npos);
  EXPECT_NE(refusal(sizes_of("Qwen3_5ForCausalLM").set("attn_output_gate", false))
                .find("attn_output_gate"),
            std::string::npos);
  EXPECT_NE(refusal(sizes_of("Qwen3_5ForCausalLM").set("linear_num_value_heads", 24))
                .find("do not divide"),
            std::string::npos);
}

TEST(HuggingFaceConfig, TheOtherFamilies) {
  const ModelConfig smollm3 =
      read(sizes_of("SmolLM3ForCausalLM").set("no_rope_layers", json("[1, 1, 0, 1]")));
  EXPECT_EQ(smollm3.rope_layers, (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(smollm3.rope_theta, 2e6);
  const ModelConfig granite = read(sizes_of("GraniteForCausalLM")
                                       .set("embedding_multiplier", 12)
                                       .set("residual_multiplier", 0.25)
                                       .set("attention_multiplier", 0.125)
                                       .set("logits_scaling", 8));
  EXPECT_EQ(granite.embedding_scale, 12);
  EXPECT_EQ(granite.residual_scale, 0.25f);
  EXPECT_EQ(granite.attention_scale, 0.125f);
  EXPECT_EQ(granite.logit_divisor, 8);
  const ModelConfig starcoder = read(sizes_of("Starcoder2ForCausalLM").set("norm_epsilon", 1e-4));
  EXPECT_TRUE(starcoder.qkv_bias && starcoder.attention_out_bias && starcoder.ffn_bias);
  EXPECT_FLOAT_EQ(starcoder.rms_eps, 1e-4f);
  EXPECT_FALSE(read(sizes_of("Starcoder2ForCausalLM").set("use_bias", false)).qkv_bias);
  const ModelConfig qwen2 = read(sizes_of("Qwen2ForCausalLM"));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.attention_out_bias);
  EXPECT_EQ(read(sizes_of("Qwen3ForCausalLM")).head_dim, 128);
  EXPECT_EQ(read(sizes_of("Olmo2ForCausalLM")).architecture, "olmo2");
  EXPECT_EQ(read(sizes_of("Olmo2ForCausalLM")).window, 0);
  EXPECT_EQ(read(sizes_of("Olmo3ForCausalLM")).architecture, "olmo2");
  EXPECT_EQ(read(sizes_of("Olmo3ForCausalLM")).window, 4096);
}

TEST(HuggingFaceConfig, PartsOfHeadsThatRotate) {
  const auto rope_dim = [](const Json& config) { return read(config).rope_dim; };
  EXPECT_EQ(rope_dim(sizes_of("GlmForCausalLM").set("head_dim", 32)), 16);
  EXPECT_EQ(rope_dim(sizes_of("StableLmForCausalLM").set("head_dim", 32)), 8);
  EXPECT_EQ(rope_dim(sizes_of("GPTNeoXForCausalLM")
                         .set("num_key_value_heads", 4)
                         .set("head_dim", 32)
                         .set("rotary_pct", 0.75)),
            24);
  EXPECT_EQ(rope_dim(sizes_of("MiniMaxM2ForCausalLM").set("head_dim", 32).set("rotary_dim", 10)),
            10);
}

TEST(HuggingFaceConfig, LayersThatAreMixturesInErnie) {
  const ModelConfig config = read(sizes_of("Ernie4_5_MoeForCausalLM")
                                      .set("num_hidden_layers", 6)
                                      .set("moe_layer_start_index", 1)
                                      .set("moe_layer_end_index", 4)
                                      .set("moe_layer_interval", 2));
  for (int32_t i = 0; i < 6; ++i) EXPECT_EQ(config.experts.in_layer(i), i == 1 || i == 3) << i;
}

TEST(HuggingFaceConfig, WhatTheNewFamiliesHaveNotIsNamed) {
  const auto field = [](const Json& config) { return from_json(config).status().field(); };
  EXPECT_TRUE(*read(sizes_of("CohereForCausalLM").set("use_qk_norm", true)).mixers.head_norms);
  EXPECT_EQ(field(sizes_of("StableLmForCausalLM").set("qk_layernorm", true)), "qk_layernorm");
  EXPECT_EQ(field(sizes_of("PhiForCausalLM").set("qk_layernorm", true)), "qk_layernorm");
  EXPECT_EQ(field(sizes_of("OlmoForCausalLM").set("clip_qkv", 8.0)), "clip_qkv");
  EXPECT_EQ(field(sizes_of("GptOssForCausalLM").set("swiglu_limit", 6.0)), "swiglu_limit");
  EXPECT_EQ(field(sizes_of("ArceeForCausalLM").set("hidden_act", "gelu")), "hidden_act");
  EXPECT_EQ(field(sizes_of("DogeForCausalLM")), "architectures");
}

TEST(HuggingFaceConfig, WhatTheLastFamiliesHaveNotIsNamed) {
  const auto field = [](const Json& config) { return from_json(config).status().field(); };
  const auto attention = [&](std::string_view name, const Json& value) {
    return field(sizes_of("MptForCausalLM").set("attn_config", Json::object().set(name, value)));
  };
  EXPECT_EQ(attention("alibi", Json(false)), "alibi");
  EXPECT_EQ(attention("clip_qkv", Json(8.0)), "clip_qkv");
  EXPECT_EQ(attention("qk_ln", Json(true)), "qk_ln");
  EXPECT_EQ(attention("alibi_bias_max", Json(16)), "alibi_bias_max");
  EXPECT_EQ(attention("attn_type", Json("multiquery_attention")), "attn_type");
  EXPECT_EQ(field(sizes_of("MptForCausalLM").set("logit_scale", 0.5)), "logit_scale");
  EXPECT_EQ(field(sizes_of("MptForCausalLM").set("no_bias", false)), "no_bias");
  EXPECT_EQ(
      field(sizes_of("BloomForCausalLM").set("apply_residual_connection_post_layernorm", true)),
      "apply_residual_connection_post_layernorm");
  EXPECT_EQ(field(sizes_of("RecurrentGemmaForCausalLM")
                      .set("block_types", Json(Json::Array{Json("window")}))),
            "block_types");
  EXPECT_EQ(field(sizes_of("RecurrentGemmaForCausalLM").set("lru_width", 33)), "lru_width");
  const Json unequal =
      Json::object().set("rope_type", "longrope").set("short_mscale", 1.1).set("long_mscale", 1.2);
  EXPECT_EQ(field(sizes_of("PhimoeForCausalLM").set("rope_scaling", unequal)), "long_mscale");
}

// Hunyuan's files call a larger base "dynamic".
TEST(HuggingFaceConfig, AlphaStretchesTheBaseOfARotation) {
  const Json scaling =
      Json::object().set("type", "dynamic").set("factor", 1.0).set("alpha", 1000.0);
  const ModelConfig config =
      read(sizes_of("HunYuanDenseV1ForCausalLM").set("head_dim", 128).set("rope_scaling", scaling));
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_NEAR(config.rope_theta, 1e4 * std::pow(1000.0, 128.0 / 126), 1);
}

TEST(HuggingFaceConfig, Experts) {
  const ModelConfig mixtral = read(sizes_of("MixtralForCausalLM").set("num_local_experts", 6));
  EXPECT_EQ(mixtral.architecture, "llama");
  EXPECT_EQ(mixtral.experts.count, 6);
  EXPECT_EQ(mixtral.experts.used, 2);
  EXPECT_EQ(mixtral.experts.width, mixtral.ffn);
  EXPECT_FALSE(mixtral.experts.normalised.has_value());
  const ModelConfig qwen2 = read(sizes_of("Qwen2MoeForCausalLM")
                                     .set("num_experts", 8)
                                     .set("moe_intermediate_size", 24)
                                     .set("shared_expert_intermediate_size", 40)
                                     .set("mlp_only_layers", json("[2]")));
  EXPECT_EQ(qwen2.experts.width, 24);
  EXPECT_EQ(qwen2.experts.shared_width, 40);
  EXPECT_EQ(qwen2.experts.normalised, false);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_TRUE(qwen2.experts.in_layer(1) && !qwen2.experts.in_layer(2));
  const ModelConfig qwen3 = read(sizes_of("Qwen3MoeForCausalLM")
                                     .set("num_local_experts", 16)
                                     .set("norm_topk_prob", true)
                                     .set("decoder_sparse_step", 2));
  EXPECT_EQ(qwen3.experts.count, 16);
  EXPECT_EQ(qwen3.experts.normalised, true);
  EXPECT_EQ(qwen3.experts.dense_layers, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(read(sizes_of("OlmoeForCausalLM")).experts.used, 8);
  EXPECT_EQ(read(sizes_of("GraniteMoeForCausalLM")).experts.count, 8);
}

TEST(HuggingFaceConfig, LatentAttention) {
  const ModelConfig v3 = read(sizes_of("DeepseekV3ForCausalLM")
                                  .set("q_lora_rank", Json())
                                  .set("num_nextn_predict_layers", 1)
                                  .set("rope_interleave", false));
  EXPECT_EQ(v3.mixers.latent.rank, 512);
  EXPECT_EQ(v3.mixers.latent.query_rank, 0);
  EXPECT_EQ(v3.mixers.latent.key_dim, 192);
  EXPECT_EQ(v3.mixers.drafting_layers, 1);
  EXPECT_EQ(v3.rope_dim, 64);
  EXPECT_EQ(v3.experts.scores, ExpertScores::kSigmoid);
  EXPECT_EQ(v3.experts.groups, 8);
  EXPECT_FALSE(v3.qk_rows_interleaved);
  // The class knows one order of rows, and no sum that weights are divided by.
  const Json v2 = sizes_of("DeepseekV2ForCausalLM");
  EXPECT_TRUE(read(Json(v2).set("rope_interleave", false)).qk_rows_interleaved);
  EXPECT_EQ(read(v2).experts.normalised, false);
  const auto message = [](const Json& config) { return from_json(config).status().message(); };
  EXPECT_EQ(message(Json(v2).set("norm_topk_prob", true)),
            "config.json: norm_topk_prob: true is not supported of DeepSeek V2");
  EXPECT_EQ(
      message(Json(v2).set("topk_method", "group_limited_greedy").set("n_group", 8)),
      "config.json: topk_method: groups by their best expert (DeepSeek V2) are not supported");
  EXPECT_EQ(message(Json(v2).set("moe_layer_freq", 2)),
            "config.json: moe_layer_freq: 2 is not supported, only 1");
}

TEST(HuggingFaceConfig, ExpertsThatDoNotAddUp) {
  const auto message = [](const Json& config) { return from_json(config).status().message(); };
  const Json qwen = sizes_of("Qwen3MoeForCausalLM");
  EXPECT_EQ(message(Json(qwen).set("num_experts_per_tok", 200)),
            "config.json: num_experts_per_tok: 200 is outside 1 to the 128 experts");
  EXPECT_EQ(message(Json(qwen).set("num_experts", 1 << 20)),
            "config.json: num_experts: 1048576 is outside 0 to 4096");
  EXPECT_EQ(message(Json(qwen).set("decoder_sparse_step", 0)),
            "config.json: decoder_sparse_step: 0 is no period");
  EXPECT_EQ(message(Json(qwen).set("mlp_only_layers", json("[4]"))),
            "config.json: mlp_only_layers: 4 is none of 4 layers");
  EXPECT_EQ(message(sizes_of("OlmoeForCausalLM").set("clip_qkv", 8)),
            "config.json: clip_qkv: is not supported, only null");
}

// ---- GGUF ----

ModelConfig from_gguf(const GgufBuilder& builder) {
  const std::string data = builder.build();
  auto file = GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "t.gguf");
  auto config = model_config_from_gguf(**file);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ModelConfig{};
}

TEST(GgufConfig, WindowsAndScalings) {
  GgufBuilder builder = tiny_llama();
  builder.add_u32("llama.attention.sliding_window", 32)
      .add_u32("llama.attention.sliding_window_pattern", 1)
      .add_text("llama.rope.scaling.type", "yarn")
      .add_f32("llama.rope.scaling.factor", 4)
      .add_u32("llama.rope.scaling.original_context_length", 64);
  const ModelConfig config = from_gguf(builder);
  EXPECT_EQ(config.window, 32);
  EXPECT_EQ(config.sliding_layers, (std::vector<bool>{false}));
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(config.rope_scaling.factor, 4);
  EXPECT_EQ(config.rope_scaling.original_context, 64);
}

// gpt-oss' ramp does not start and end at whole dimensions; config.json says it, its GGUF does not.
TEST(GgufConfig, TheRampOfGptOssIsNotTruncated) {
  GgufBuilder builder;
  builder.add_text("general.architecture", "gpt-oss")
      .add_u32("gpt-oss.embedding_length", 32)
      .add_u32("gpt-oss.block_count", 2)
      .add_u32("gpt-oss.feed_forward_length", 64)
      .add_u32("gpt-oss.context_length", 64)
      .add_u32("gpt-oss.attention.head_count", 8)
      .add_f32("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5f)
      .add_u32("gpt-oss.expert_count", 8)
      .add_u32("gpt-oss.expert_used_count", 2)
      .add_text("gpt-oss.rope.scaling.type", "yarn")
      .add_f32("gpt-oss.rope.scaling.factor", 32)
      .add_u32("gpt-oss.rope.scaling.original_context_length", 16)
      .add_tensor("token_embd.weight", {32, 40}, 0);
  EXPECT_EQ(from_gguf(builder).rope_scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_FALSE(from_gguf(builder).rope_scaling.truncate);
}

TEST(GgufConfig, TensorsTellOfDivisorsAndFusedMatrices) {
  GgufBuilder builder = tiny_llama();
  builder.add_tensor("rope_freqs.weight", {8}, 0).add_tensor("blk.0.attn_qkv.weight", {32, 64}, 0);
  const ModelConfig config = from_gguf(builder);
  EXPECT_TRUE(config.rope_scaling.divisors);
  EXPECT_TRUE(config.fused.qkv);
  EXPECT_FALSE(config.qkv_bias);
}

TEST(GgufConfig, ExpertsOfLlamasName) {
  GgufBuilder builder = tiny_llama();
  builder.add_u32("llama.expert_count", 6).add_u32("llama.expert_used_count", 2);
  EXPECT_EQ(from_gguf(builder).experts.width, 64);
  builder.add_tensor("blk.0.ffn_up_exps.weight", {32, 24, 6}, 0);
  const ModelConfig config = from_gguf(builder);
  EXPECT_EQ(config.experts.count, 6);
  EXPECT_EQ(config.experts.used, 2);
  EXPECT_EQ(config.experts.width, 24);
}

// The first files have sizes of heads, and say nothing of how weights of experts are made.
TEST(GgufConfig, LatentsOfTheFirstFiles) {
  GgufBuilder builder;
  builder.add_text("general.architecture", "deepseek2")
      .add_u32("deepseek2.embedding_length", 32)
      .add_u32("deepseek2.block_count", 2)
      .add_u32("deepseek2.feed_forward_length", 64)
      .add_u32("deepseek2.context_length", 64)
      .add_u32("deepseek2.attention.head_count", 4)
      .add_u32("deepseek2.attention.key_length", 24)
      .add_u32("deepseek2.attention.value_length", 10)
      .add_u32("deepseek2.attention.kv_lora_rank", 16)
      .add_u32("deepseek2.rope.dimension_count", 8)
      .add_f32("deepseek2.attention.layer_norm_rms_epsilon", 1e-6f)
      .add_u32("deepseek2.expert_count", 8)
      .add_u32("deepseek2.expert_used_count", 2)
      .add_u32("deepseek2.leading_dense_block_count", 1)
      .add_tensor("token_embd.weight", {32, 40}, 0);
  ModelConfig config = from_gguf(builder);
  EXPECT_EQ(config.mixers.latent.plain_dim, 16);
  EXPECT_EQ(config.mixers.latent.value_dim, 10);
  EXPECT_TRUE(config.mixers.latent.joined);
  EXPECT_EQ(config.experts.normalised, false);
  EXPECT_NE(config.experts.scores, ExpertScores::kSigmoid);
  builder.add_tensor("blk.1.exp_probs_b.bias", {8}, 0)
      .add_tensor("blk.0.attn_k_b.weight", {16, 16, 4}, 0);
  config = from_gguf(builder);
  EXPECT_EQ(config.experts.scores, ExpertScores::kSigmoid);
  EXPECT_FALSE(config.mixers.latent.joined);
}

// GLM-4.5's files count the layers that draft.
TEST(GgufConfig, LayersThatDraftAreLeftOut) {
  GgufBuilder builder;
  builder.add_text("general.architecture", "glm4moe")
      .add_u32("glm4moe.embedding_length", 32)
      .add_u32("glm4moe.block_count", 3)
      .add_u32("glm4moe.nextn_predict_layers", 1)
      .add_u32("glm4moe.feed_forward_length", 64)
      .add_u32("glm4moe.context_length", 64)
      .add_u32("glm4moe.attention.head_count", 4)
      .add_f32("glm4moe.attention.layer_norm_rms_epsilon", 1e-6f)
      .add_u32("glm4moe.expert_count", 8)
      .add_u32("glm4moe.expert_used_count", 2)
      .add_tensor("token_embd.weight", {32, 40}, 0);
  EXPECT_EQ(from_gguf(builder).layers, 2);
}

}  // namespace
}  // namespace headrace::model_config_test
