// The same model as an F32 GGUF file and as a Hugging Face folder, for every family of models: the
// tensors must be bit-equal, and so must what the two compute.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "apps/eval_score.h"
#include "base/json.h"
#include "base/rng.h"
#include "stack/model_files.h"
#include "stack/model_stack.h"
#include "weights/gemma_families.h"
#include "weights/gguf_fixture.h"
#include "weights/gpt_families.h"
#include "weights/mamba_families.h"
#include "weights/model_family.h"
#include "weights/safetensors_fixture.h"

namespace headrace::formats_test {
namespace {

namespace fs = std::filesystem;

bool keeps_latents(const ModelFamily& family) { return family.reads_hf("kv_lora_rank"); }

bool is_gemma(const ModelFamily& family) {
  return family.architecture.find("gemma") != std::string_view::npos;
}
bool is_glm(const ModelFamily& family) {
  return family.architecture.find("glm") != std::string_view::npos;
}

void add_experts(const ModelFamily& family, ModelConfig& config) {
  // Llama's row is a Mixtral's too, in GGUF files.
  // Youtu's is DeepSeek's, without any.
  const std::string_view hf_class = family.hf_classes[0];
  if (family.has_experts() && hf_class != "LlamaForCausalLM" && hf_class != "YoutuForCausalLM") {
    config.experts = {.count = 5, .used = 2, .width = 48, .shared_width = 80};
    if (family.architecture == "hy_v3") config.experts.shared_width = 0;
    if (family.architecture == "minimax-m2" || family.architecture == "gpt-oss" ||
        family.architecture == "cohere2moe") {
      config.experts.width = config.ffn;
    }
    if (family.architecture == "hunyuan-moe") {
      config.experts.width = config.experts.shared_width = config.ffn;
    }
    // More where a config.json is silent.
    if (family.architecture == "lfm2moe" || family.architecture == "glm4moe" ||
        family.architecture == "ernie4_5-moe" || keeps_latents(family)) {
      config.experts.dense_first = 1;
    }
  }
}

// Small sizes; what a family does not have stays unwritten.
ModelConfig small_sizes(const ModelFamily& family) {
  const std::string_view architecture = family.architecture;
  ModelConfig config;
  config.hidden = 32;
  config.layers = 3;
  config.ffn = 64;
  config.vocab = 96;
  config.context_length = 128;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.rope_theta = 10000;
  config.rms_eps = 1e-5f;
  for (const char* slides :
       {"exaone4", "cwm", "gpt-oss", "cohere2", "afmoe", "mellum", "cohere2moe"}) {
    if (architecture == slides) config.window = 8;
  }
  if (architecture == "gptneox" || architecture == "gpt2") config.kv_heads = config.heads;
  if (architecture == "starcoder" || architecture == "falcon") config.kv_heads = 1;
  if (architecture == "bloom" || architecture == "mpt") {
    config.kv_heads = config.heads;
    config.mixers.alibi_bias_max = 8;
  }
  if (is_gemma(family) && architecture != "gemma") {
    config.window = 8;
    config.attention_soft_cap = architecture != "gemma3" ? 50.0f : 0.0f;
    config.logit_soft_cap = architecture != "gemma3" ? 30.0f : 0.0f;
  }
  if (is_glm(family) && !keeps_latents(family)) config.rope_dim = 4;
  for (const char* partly : {"nemotron", "stablelm", "phi2", "gptneox"}) {
    if (architecture == partly) config.rope_dim = 4;
  }
  if (architecture.starts_with("granite")) {
    config.attention_scale = 0.25f;
    config.embedding_scale = 2;
    config.residual_scale = 0.5f;
    config.logit_divisor = 4;
  }
  if (family.other_mixer == LayerMixer::kShortConv) config.mixers.conv_taps = 3;
  if (keeps_latents(family)) {
    config.mixers.latent = {.rank = 16,
                            .query_rank = 24,
                            .plain_dim = 6,
                            .rope_dim = 4,
                            .value_dim = 10,
                            .key_dim = 10};
    if (family.reads_hf("index_topk")) {
      config.mixers.latent.index_heads = 3;
      config.mixers.latent.index_dim = 6;
      config.mixers.latent.index_top = 5;
    }
    config.mixers.drafting_layers = 1;
    config.head_dim = 4;
  }
  if (architecture == "minicpm3") {  // which files say nothing of
    config.embedding_scale = 12;
    config.residual_scale = 1.4f;
    config.logit_divisor = 256;
    config.head_dim = config.mixers.latent.key_dim;
  }
  add_experts(family, config);
  return config;
}

double value_of(const ConfigField& field, const ModelConfig& config) {
  return visit_member(config, field.member,
                      [](const auto& value) { return static_cast<double>(value); });
}

template <class Write>
void for_each_field(const ModelFamily& family, const Write& write) {
  for (const auto& fields : {common_fields(), family.fields}) {
    for (const ConfigField& field : fields) write(field);
  }
}

Json config_json(const ModelFamily& family, const ModelConfig& sizes) {
  Json json = Json::object();
  json.set("architectures", Json(Json::Array{Json(family.hf_classes[0])}));
  json.set("hidden_act", family.hf_activations[0]);
  // Scores are scaled by a number of their own, which GGUF files do not have.
  if (is_gemma(family)) json.set("query_pre_attn_scalar", sizes.head_dim);
  if (sizes.rope_dim > 0) {
    json.set("partial_rotary_factor", static_cast<double>(sizes.rope_dim) / sizes.head_dim);
  }
  // GGUF files of these do not say it where it is so.
  if (family.architecture == "qwen3moe" || family.architecture == "dots1") {
    json.set("norm_topk_prob", true);
  }
  if (keeps_latents(family)) json.set("norm_topk_prob", false);
  if (family.architecture == "afmoe") json.set("mup_enabled", true);
  if (family.architecture == "cohere2moe") {
    json.set("expert_selection_fn", "sigmoid").set("norm_topk_prob", false);
  }
  if (family.architecture == "lfm2") json.set("block_auto_adjust_ff_dim", false);
  for_each_field(family, [&](const ConfigField& field) {
    if (field.hf.empty()) return;
    const double value = value_of(field, sizes);
    if (value != 0 && field.is_whole()) json.set(field.hf, static_cast<int64_t>(value));
    if (value != 0 && !field.is_whole()) json.set(field.hf, value);
    if (value == 0 && field.presence == Presence::kNullable) json.set(field.hf, Json());
  });
  return json;
}

void add_config(const ModelFamily& family, const ModelConfig& sizes, GgufBuilder& builder) {
  builder.add_text("general.architecture", family.architecture);
  if (family.architecture == "gptneox") builder.add_bool("gptneox.use_parallel_residual", true);
  for_each_field(family, [&](const ConfigField& field) {
    const double value = value_of(field, sizes);
    if (field.gguf.empty() || value == 0) return;
    const std::string key = std::string(family.architecture) + "." + std::string(field.gguf);
    if (field.is_whole()) {
      builder.add_u32(key, static_cast<uint32_t>(value));
    } else {
      builder.add_f32(key, static_cast<float>(value));
    }
  });
}

// Rows as the original interleaved rotation has them: GGUF row head * d + 2 i + h is row
// head * d + h * d / 2 + i of a Hugging Face file.
std::vector<float> interleaved(const std::vector<float>& rows, int64_t columns, int64_t head_dim) {
  std::vector<float> out(rows.size());
  const auto count = static_cast<int64_t>(rows.size()) / columns;
  for (int64_t row = 0; row < count; ++row) {
    const int64_t head = row / head_dim, r = row % head_dim, half = head_dim / 2;
    const int64_t to = head * head_dim + 2 * (r % half) + r / half;
    std::copy_n(rows.begin() + row * columns, columns, out.begin() + to * columns);
  }
  return out;
}

// Of rows that have a key head's queries, keys and values together: all q, all k, all v, as GGUF
// files have them.
std::vector<float> parts_first(const std::vector<float>& values, const ModelConfig& config) {
  const int64_t group = config.heads / config.kv_heads;
  const auto head_size = std::ssize(values) / (config.kv_heads * (group + 2));
  std::vector<float> out;
  const auto add = [&](int64_t key_head, int64_t first, int64_t heads) {
    const auto from = values.begin() + (key_head * (group + 2) + first) * head_size;
    out.insert(out.end(), from, from + heads * head_size);
  };
  for (int64_t head = 0; head < config.kv_heads; ++head) add(head, 0, group);
  for (int64_t head = 0; head < config.kv_heads; ++head) add(head, group, 1);
  for (int64_t head = 0; head < config.kv_heads; ++head) add(head, group + 1, 1);
  return out;
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::vector<int64_t> dimensions(const Shape& shape) {
  std::vector<int64_t> dimensions;
  for (int d = 0; d < shape.rank(); ++d) dimensions.push_back(shape[d]);
  return dimensions;
}

// A model's tensors as Hugging Face files have them, by turns in two files: experts one by one, or
// their gates and ups in one.
class HfShards {
 public:
  explicit HfShards(HfTensorNames names) : names_(names) {}

  HfMatch match(const std::string& gguf) const {
    const auto match = match_hf_name(names_, hf_name_of(names_, gguf));
    EXPECT_TRUE(match.has_value() && (match->gguf == gguf || match->second_half == gguf)) << gguf;
    return match.value_or(HfMatch());
  }

  void add(const TensorSpec& spec, const HfMatch& match, const std::vector<float>& values) {
    const std::string hf = hf_name_of(names_, spec.name);
    if (match.form == HfForm::kTurnedAlone) return add_turned(spec, hf, values);
    if (match.form != HfForm::kPlain) return add_by_turns(spec, match, hf, values);
    if (match.expert >= 0) return add_each_expert(spec, values);
    if (match.second_half.empty()) return add(hf, dimensions(spec.shape), values);
    if (match.gguf == spec.name) return void(first_halves_[hf] = values);
    const std::vector<float>& first = first_halves_.at(hf);
    if (spec.shape.rank() == 2) return add_halves(spec, hf, first, values);
    std::vector<float> both;
    const auto size = static_cast<int64_t>(values.size()) / spec.shape[0];
    for (int64_t e = 0; e < spec.shape[0]; ++e) {
      for (const auto* half : {&first, &values}) {
        both.insert(both.end(), half->begin() + e * size, half->begin() + (e + 1) * size);
      }
    }
    add(hf, {spec.shape[0], 2 * spec.shape[1], spec.shape[2]}, both);
  }

  // As GPT-2 has them.
  void add_turned(const TensorSpec& spec, const std::string& hf, const std::vector<float>& values) {
    const int64_t rows = spec.shape[0], columns = spec.shape[1];
    std::vector<float> turned;
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < rows; ++r) {
        turned.push_back(values[static_cast<size_t>(r * columns + c)]);
      }
    }
    add(hf, {columns, rows}, turned);
  }

  // As gpt-oss has them: matrices turned, and rows of gates and ups by turns.
  void add_by_turns(const TensorSpec& spec, const HfMatch& match, const std::string& hf,
                    const std::vector<float>& values) {
    const bool two = !match.second_half.empty();
    if (two && match.gguf == spec.name) return void(first_halves_[hf] = values);
    const int64_t experts = spec.shape[0], rows = spec.shape[1];
    const int64_t columns = spec.shape.rank() == 3 ? spec.shape[2] : 1;
    std::vector<float> all;
    for (int64_t e = 0; e < experts; ++e) {
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = 0; r < rows; ++r) {
          const auto at = static_cast<size_t>((e * rows + r) * columns + c);
          if (two) all.push_back(first_halves_.at(hf)[at]);
          all.push_back(values[at]);
        }
      }
    }
    const int64_t width = two ? 2 * rows : rows;
    add(hf,
        spec.shape.rank() == 3 ? std::vector{experts, columns, width} : std::vector{experts, width},
        all);
  }

  // Of a matrix of gates, then ups.
  void add_halves(const TensorSpec& spec, const std::string& hf, const std::vector<float>& first,
                  const std::vector<float>& second) {
    std::vector<float> both = first;
    both.insert(both.end(), second.begin(), second.end());
    add(hf, {2 * spec.shape[0], spec.shape[1]}, both);
  }

  void add_unread(const std::string& hf) { add(hf, {2}, {1, 2}); }

  std::string build(size_t file) { return shards_[file].build(); }
  std::string index() const { return write_json(Json::object().set("weight_map", map_)); }

 private:
  void add_each_expert(const TensorSpec& spec, const std::vector<float>& values) {
    const auto size = static_cast<int64_t>(values.size()) / spec.shape[0];
    for (int32_t e = 0; e < spec.shape[0]; ++e) {
      add(hf_name_of(names_, spec.name, e), {spec.shape[1], spec.shape[2]},
          {values.begin() + e * size, values.begin() + (e + 1) * size});
    }
  }
  void add(const std::string& hf, const std::vector<int64_t>& shape,
           const std::vector<float>& values) {
    const size_t file = added_++ % 2;
    shards_[file].add_f32(hf, shape, values);
    map_.set(hf, file == 0 ? "a.safetensors" : "b.safetensors");
  }

  const HfTensorNames names_;
  SafetensorsBuilder shards_[2];
  Json map_ = Json::object();
  size_t added_ = 0;
  std::map<std::string, std::vector<float>> first_halves_;  // of tensors of gates and ups
};

class Formats : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("formats-" + std::to_string(GetParam()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string gguf_path() const { return (folder_ / "model.gguf").string(); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }

  // Writes both forms. Values of norms lie around what leaves activations in range.
  void write_model(const ModelFamily& family) {
    const ModelConfig sizes = small_sizes(family);
    write("config.json", write_json(config_json(family, sizes)));
    const auto config = model_config_from_file(folder_.string());
    ASSERT_TRUE(config.ok()) << config.status().message();
    const auto architecture = find_architecture(config->architecture);
    ASSERT_TRUE(architecture.ok()) << architecture.status().message();
    GgufBuilder gguf;
    add_config(family, sizes, gguf);
    HfShards shards((*architecture)->hf_names());
    Rng rng(GetParam() + 1);
    for (const TensorSpec& spec : (*architecture)->tensors(*config)) {
      const HfMatch match = shards.match(spec.name);
      std::vector<float> values(static_cast<size_t>(*spec.shape.elements()));
      const float mean = spec.shape.rank() == 1 && match.offset == 0 ? 1.0f : 0.0f;
      for (float& value : values) value = mean + static_cast<float>(rng.uniform() - 0.5) * 0.4f;
      shards.add(spec, match, values);
      for (float& value : values) value += match.offset;
      const bool rotated =
          spec.name.ends_with("attn_q.weight") || spec.name.ends_with("attn_k.weight");
      if (family.gguf_rows_interleaved && rotated && !config->qk_rows_interleaved) {
        values = interleaved(values, spec.shape[1], config->head_dim);
      }
      if (config->fused.qkv_by_head && spec.name.find("attn_qkv") != std::string::npos) {
        values = parts_first(values, *config);
      }
      const std::vector<int64_t> shape = dimensions(spec.shape);
      gguf.add_tensor(spec.name, {shape.rbegin(), shape.rend()}, 0);
      gguf.tensors.back().data = bytes_of(values);
    }
    write("model.gguf", gguf.build());
    // A layer that drafts stands behind those of the model, and is not read.
    if (keeps_latents(family) && family.reads_hf("num_nextn_predict_layers")) {
      shards.add_unread("model.layers.3.enorm.weight");
      shards.add_unread("model.layers.3.self_attn.q_a_proj.weight");
    }
    write("a.safetensors", shards.build(0));
    write("b.safetensors", shards.build(1));
    write("model.safetensors.index.json", shards.index());
  }

  void expect_gguf_refused(const ModelFamily& family) {
    GgufBuilder gguf;
    gguf.add_text("general.architecture", family.architecture);
    write("model.gguf", gguf.build());
    const auto file = GgufFile::open(gguf_path());
    ASSERT_TRUE(file.ok()) << file.status().message();
    const Status status = model_config_from_gguf(**file).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find("safetensors"), std::string::npos) << status.message();
  }

  // Log-probabilities of a prompt and of 8 greedy tokens, as text with every digit.
  static std::string scores(const std::string& model) {
    auto stack = ModelStack::load({.model = model,
                                   .device = {.threads = 1},
                                   .load = {.dtype = DType::kF32},
                                   .batch = {.max_num_seqs = 1},
                                   .memory = {.max_model_len = 64}});
    EXPECT_TRUE(stack.ok()) << stack.status().message();
    if (!stack.ok()) return "";
    std::string text;
    const Status status = score_lines(
        **stack, R"({"id": 1, "prompt_ids": [3, 1, 4, 15, 92, 65, 35, 8, 9, 79, 3, 2]})",
        {.top = 5, .max_tokens = 8}, [&](std::string_view line) { text += line; });
    EXPECT_TRUE(status.ok()) << status.message();
    return text;
  }

  fs::path folder_;
};

TEST_P(Formats, GgufAndSafetensorsAreTheSameModel) {
  const ModelFamily& family = model_families()[GetParam()];
  if (has_no_gguf(family.architecture)) return expect_gguf_refused(family);
  // Numbers of a state space lie otherwise in each form: both are among tests/data/models.
  if (has_state_space(family) || family.other_mixer == LayerMixer::kRwkv7 ||
      family.other_mixer == LayerMixer::kDeltaNet) {
    return;
  }
  for (const char* by_layer : {"llama4", "kimi-linear", "minimax-01", "mimo2", "laguna", "step35",
                               "bailingmoe3", "dbrx", "qwen3vlmoe"}) {
    if (family.architecture == by_layer) return;
  }
  if (is_layered_gemma(family.architecture)) return;  // and numbers of layers
  // A config.json that is silent of its rotation has a scaled one, which a GGUF file always names.
  if (family.architecture == "mistral4") return;
  ASSERT_NO_FATAL_FAILURE(write_model(family));
  const auto gguf = open_model_source(gguf_path()), hf = open_model_source(folder_.string());
  ASSERT_TRUE(gguf.ok()) << gguf.status().message();
  ASSERT_TRUE(hf.ok()) << hf.status().message();
  const ModelWeights a = read_weights(**gguf), b = read_weights(**hf);
  ASSERT_TRUE(refusal(a.problems).ok()) << refusal(a.problems).message();
  ASSERT_TRUE(refusal(b.problems).ok()) << refusal(b.problems).message();
  EXPECT_EQ(a.parameter_count, b.parameter_count);
  for (const std::string_view name : a.weights->names()) {
    const bool rotated = name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight");
    const bool by_head = (family.architecture == "gptneox" || family.architecture == "bloom") &&
                         name.find("attn_qkv") != std::string_view::npos;
    // In another order by design.
    if ((family.gguf_rows_interleaved && rotated) || by_head) continue;
    const ConstTensorView x = *a.weights->get(name), y = *b.weights->get(name);
    ASSERT_EQ(x.shape, y.shape) << name;
    const auto size = static_cast<size_t>(*tensor_bytes(x.dtype, x.shape));
    EXPECT_EQ(std::memcmp(x.data, y.data, size), 0) << name;
  }
  const std::string scored = scores(gguf_path());
  EXPECT_GT(scored.size(), 500u);
  EXPECT_EQ(scored, scores(folder_.string()));
}

INSTANTIATE_TEST_SUITE_P(Families, Formats, testing::Range(size_t{0}, model_families().size()),
                         [](const auto& info) {
                           const ModelFamily& family = model_families()[info.param];
                           return std::string(family.hf_classes[0]);
                         });

}  // namespace
}  // namespace headrace::formats_test
