// The same model as an F32 GGUF file and as a Hugging Face folder, for every family of models: the
// tensors must be bit-equal, and so must what the two compute.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/eval_score.h"
#include "base/json.h"
#include "base/rng.h"
#include "stack/model_files.h"
#include "stack/model_stack.h"
#include "weights/gguf_fixture.h"
#include "weights/model_family.h"
#include "weights/safetensors_fixture.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// Small sizes; what a family does not have stays unwritten.
ModelConfig small_sizes(std::string_view architecture) {
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
  if (architecture == "gemma2" || architecture == "gemma3") {
    config.window = 8;
    config.attention_soft_cap = architecture == "gemma2" ? 50.0f : 0.0f;
    config.logit_soft_cap = architecture == "gemma2" ? 30.0f : 0.0f;
  }
  if (architecture == "granite") {
    config.attention_scale = 0.25f;
    config.embedding_scale = 2;
    config.residual_scale = 0.5f;
    config.logit_divisor = 4;
  }
  return config;
}

double value_of(const ConfigField& field, const ModelConfig& config) {
  return std::visit([&](auto member) { return static_cast<double>(config.*member); }, field.member);
}

bool is_whole(const ConfigField& field) {
  return std::holds_alternative<int32_t ModelConfig::*>(field.member);
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
  if (family.architecture.starts_with("gemma")) json.set("query_pre_attn_scalar", sizes.head_dim);
  for_each_field(family, [&](const ConfigField& field) {
    if (field.hf.empty()) return;
    const double value = value_of(field, sizes);
    if (value != 0 && is_whole(field)) json.set(field.hf, static_cast<int64_t>(value));
    if (value != 0 && !is_whole(field)) json.set(field.hf, value);
    if (value == 0 && field.presence == Presence::kNullable) json.set(field.hf, Json());
  });
  return json;
}

void add_config(const ModelFamily& family, const ModelConfig& sizes, GgufBuilder& builder) {
  builder.add_text("general.architecture", family.architecture);
  for_each_field(family, [&](const ConfigField& field) {
    const double value = value_of(field, sizes);
    if (field.gguf.empty() || value == 0) return;
    const std::string key = std::string(family.architecture) + "." + std::string(field.gguf);
    if (is_whole(field)) {
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

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

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
    const ModelConfig sizes = small_sizes(family.architecture);
    write("config.json", write_json(config_json(family, sizes)));
    const auto config = model_config_from_file(folder_.string());
    ASSERT_TRUE(config.ok()) << config.status().message();
    const auto architecture = find_architecture(config->architecture);
    ASSERT_TRUE(architecture.ok()) << architecture.status().message();
    GgufBuilder gguf;
    add_config(family, sizes, gguf);
    SafetensorsBuilder shards[2];
    Json map = Json::object();
    Rng rng(GetParam() + 1);
    const HfTensorNames names = (*architecture)->hf_names();
    const std::vector<TensorSpec> specs = (*architecture)->tensors(*config);
    for (size_t i = 0; i < specs.size(); ++i) {
      const TensorSpec& spec = specs[i];
      const std::string hf = hf_name_of(names, spec.name);
      const auto match = match_hf_name(names, hf);
      ASSERT_TRUE(match.has_value() && match->gguf == spec.name) << spec.name << " " << hf;
      std::vector<float> values(static_cast<size_t>(*spec.shape.elements()));
      const float mean = spec.shape.rank() == 1 && match->offset == 0 ? 1.0f : 0.0f;
      for (float& value : values) value = mean + static_cast<float>(rng.uniform() - 0.5) * 0.4f;
      std::vector<int64_t> shape;
      for (int d = 0; d < spec.shape.rank(); ++d) shape.push_back(spec.shape[d]);
      shards[i % 2].add_f32(hf, shape, values);
      map.set(hf, i % 2 == 0 ? "a.safetensors" : "b.safetensors");
      for (float& value : values) value += match->offset;
      const bool rotated =
          spec.name.ends_with("attn_q.weight") || spec.name.ends_with("attn_k.weight");
      if (family.gguf_rows_interleaved && rotated) {
        values = interleaved(values, spec.shape[1], config->head_dim);
      }
      gguf.add_tensor(spec.name, {shape.rbegin(), shape.rend()}, 0);
      gguf.tensors.back().data = bytes_of(values);
    }
    write("model.gguf", gguf.build());
    write("a.safetensors", shards[0].build());
    write("b.safetensors", shards[1].build());
    write("model.safetensors.index.json",
          write_json(Json::object().set("weight_map", std::move(map))));
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
  ASSERT_NO_FATAL_FAILURE(write_model(family));
  const auto gguf = open_model_source(gguf_path()), hf = open_model_source(folder_.string());
  ASSERT_TRUE(gguf.ok() && hf.ok());
  const ModelWeights a = read_weights(**gguf), b = read_weights(**hf);
  ASSERT_TRUE(refusal(a.problems).ok()) << refusal(a.problems).message();
  ASSERT_TRUE(refusal(b.problems).ok()) << refusal(b.problems).message();
  EXPECT_EQ(a.parameter_count, b.parameter_count);
  for (const std::string_view name : a.weights->names()) {
    const bool rotated = name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight");
    if (family.gguf_rows_interleaved && rotated) continue;  // in another order by design
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
}  // namespace headrace
