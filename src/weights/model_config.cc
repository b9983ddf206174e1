#include "weights/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/mapped_file.h"

namespace headrace {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;

// A file's fields by name, whatever its format: what the checks below need for their messages.
struct Source {
  std::string_view file;
  Status corrupt_field(std::string_view field, std::string_view what) const {
    return corrupt(fmt::format("{}: {}: {}", file, field, what), std::string(field));
  }
  Status unsupported_field(std::string_view field, std::string_view what) const {
    return unsupported(fmt::format("{}: {}: {}", file, field, what), std::string(field));
  }
};

// What the same size is called in the file at hand.
struct FieldNames {
  std::string hidden, layers, heads, kv_heads, head_dim, ffn, vocab, context_length, rms_eps,
      rope_theta, rope_dim;
};

Status set_size(const Source& source, std::string_view field, int64_t value, int32_t value_max,
                int32_t& size) {
  if (value < 1 || value > value_max) {
    return source.corrupt_field(field, fmt::format("{} is outside 1 to {}", value, value_max));
  }
  size = static_cast<int32_t>(value);
  return ok_status();
}

// Relations between sizes, whichever file they came from.
Status check_relations(const Source& source, const FieldNames& names, const ModelConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    return source.corrupt_field(names.kv_heads,
                                fmt::format("{} key/value heads do not divide {} query heads",
                                            config.kv_heads, config.heads));
  }
  if (config.head_dim % 2 != 0) {
    return source.corrupt_field(names.head_dim,
                                fmt::format("head size {} is odd", config.head_dim));
  }
  if (config.rope_dim % 2 != 0 || config.rope_dim > config.head_dim) {
    return source.corrupt_field(
        names.rope_dim,
        fmt::format("{} rotated dimensions: must be even and at most the head size {}",
                    config.rope_dim, config.head_dim));
  }
  // Positive conditions: NaN fails them.
  if (!(config.rms_eps > 0 && config.rms_eps < 1)) {
    return source.corrupt_field(names.rms_eps,
                                fmt::format("{} is not between 0 and 1", config.rms_eps));
  }
  if (!(config.rope_theta >= 1 && config.rope_theta <= 1e12)) {
    return source.corrupt_field(names.rope_theta,
                                fmt::format("{} is not between 1 and 1e12", config.rope_theta));
  }
  return ok_status();
}

// The size of a head where a file does not say it.
Status derive_head_dim(const Source& source, const FieldNames& names, ModelConfig& config) {
  if (config.hidden % config.heads != 0) {
    return source.corrupt_field(
        names.heads, fmt::format("{} heads do not divide the hidden size {} ({})", config.heads,
                                 config.hidden, names.hidden));
  }
  return set_size(source, names.head_dim, config.hidden / config.heads, kModelLimits.head_dim_max,
                  config.head_dim);
}

Status set_end_ids(const Source& source, std::string_view field, const std::vector<int64_t>& ids,
                   ModelConfig& config) {
  for (const int64_t id : ids) {
    if (id < 0 || id >= config.vocab) {
      return source.corrupt_field(
          field, fmt::format("{} is no id of a vocabulary of {}", id, config.vocab));
    }
    config.end_ids.push_back(static_cast<int32_t>(id));
  }
  std::sort(config.end_ids.begin(), config.end_ids.end());
  config.end_ids.erase(std::unique(config.end_ids.begin(), config.end_ids.end()),
                       config.end_ids.end());
  return ok_status();
}

// ---- GGUF -------------------------------------------------------------------------------------

class GgufConfigReader {
 public:
  GgufConfigReader(const GgufFile& file, std::string_view architecture)
      : file_(file), source_{file.name()}, prefix_(std::string(architecture) + ".") {
    config_.architecture = architecture;
    names_ = {.hidden = key("embedding_length"),
              .layers = key("block_count"),
              .heads = key("attention.head_count"),
              .kv_heads = key("attention.head_count_kv"),
              .head_dim = key("attention.key_length"),
              .ffn = key("feed_forward_length"),
              .vocab = key("vocab_size"),
              .context_length = key("context_length"),
              .rms_eps = key("attention.layer_norm_rms_epsilon"),
              .rope_theta = key("rope.freq_base"),
              .rope_dim = key("rope.dimension_count")};
  }

  Result<ModelConfig> read() {
    HR_RETURN_IF_ERROR(refuse_unknown_features());
    HR_RETURN_IF_ERROR(read_sizes());
    HR_RETURN_IF_ERROR(read_head_sizes());
    HR_RETURN_IF_ERROR(read_constants());
    HR_RETURN_IF_ERROR(read_vocab());
    HR_RETURN_IF_ERROR(check_relations(source_, names_, config_));
    HR_RETURN_IF_ERROR(read_end_ids());
    config_.tied_embeddings = file_.find_tensor("output.weight") == nullptr;
    config_.qk_rows_interleaved = true;  // of this architecture's files
    return std::move(config_);
  }

 private:
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  // What a llama file can say that would change its arithmetic.
  Status refuse_unknown_features() const {
    HR_ASSIGN_OR_RETURN(const auto experts, file_.optional_int(key("expert_count")));
    if (experts.value_or(0) != 0) {
      return file_.unsupported_field(key("expert_count"),
                                     "mixtures of experts are not supported yet");
    }
    HR_ASSIGN_OR_RETURN(const auto scaling, file_.optional_string(key("rope.scaling.type")));
    if (scaling.value_or("none") != "none") {
      return file_.unsupported_field(
          key("rope.scaling.type"),
          fmt::format("\"{}\" is not supported yet", printable(*scaling)));
    }
    HR_ASSIGN_OR_RETURN(const auto linear, file_.optional_float(key("rope.scale_linear")));
    if (linear.value_or(1.0) != 1.0) {
      return file_.unsupported_field(key("rope.scale_linear"),
                                     fmt::format("{} is not supported yet", *linear));
    }
    if (file_.find_tensor("rope_freqs.weight") != nullptr) {
      return file_.unsupported_field("tensor rope_freqs.weight",
                                     "scaled rotary frequencies are not supported yet");
    }
    return ok_status();
  }

  Status read_size(const std::string& name, int32_t value_max, int32_t& size) const {
    HR_ASSIGN_OR_RETURN(const int64_t value, file_.require_int(name));
    return set_size(source_, name, value, value_max, size);
  }
  Status read_size_or(const std::string& name, int32_t fallback, int32_t value_max,
                      int32_t& size) const {
    HR_ASSIGN_OR_RETURN(const auto value, file_.optional_int(name));
    return set_size(source_, name, value.value_or(fallback), value_max, size);
  }

  Status read_sizes() {
    HR_RETURN_IF_ERROR(read_size(names_.hidden, kModelLimits.hidden_max, config_.hidden));
    HR_RETURN_IF_ERROR(read_size(names_.layers, kModelLimits.layers_max, config_.layers));
    HR_RETURN_IF_ERROR(read_size(names_.ffn, kModelLimits.ffn_max, config_.ffn));
    return read_size(names_.context_length, kModelLimits.context_length_max,
                     config_.context_length);
  }

  Status read_head_sizes() {
    HR_RETURN_IF_ERROR(read_size(names_.heads, kModelLimits.heads_max, config_.heads));
    HR_RETURN_IF_ERROR(
        read_size_or(names_.kv_heads, config_.heads, kModelLimits.heads_max, config_.kv_heads));
    HR_ASSIGN_OR_RETURN(const auto key_length, file_.optional_int(names_.head_dim));
    if (key_length) {
      HR_RETURN_IF_ERROR(set_size(source_, names_.head_dim, *key_length, kModelLimits.head_dim_max,
                                  config_.head_dim));
    } else {
      HR_RETURN_IF_ERROR(derive_head_dim(source_, names_, config_));
    }
    HR_ASSIGN_OR_RETURN(const auto value_length, file_.optional_int(key("attention.value_length")));
    if (value_length.value_or(config_.head_dim) != config_.head_dim) {
      return file_.unsupported_field(
          key("attention.value_length"),
          fmt::format("{} differs from the key length {}", *value_length, config_.head_dim));
    }
    return read_size_or(names_.rope_dim, config_.head_dim, kModelLimits.head_dim_max,
                        config_.rope_dim);
  }

  Status read_constants() {
    HR_ASSIGN_OR_RETURN(const double eps, file_.require_float(names_.rms_eps));
    HR_ASSIGN_OR_RETURN(const auto theta, file_.optional_float(names_.rope_theta));
    HR_ASSIGN_OR_RETURN(const auto name, file_.optional_string("general.name"));
    config_.rms_eps = static_cast<float>(eps);
    config_.rope_theta = theta.value_or(10000.0);
    config_.name = printable(name.value_or(""));
    return ok_status();
  }

  // The embedding's rows are the truth; the two other places that give the size must agree.
  Status read_vocab() {
    const GgufTensor* embedding = file_.find_tensor("token_embd.weight");
    if (embedding == nullptr) return file_.corrupt_field("tensor token_embd.weight", "missing");
    if (embedding->shape.rank() != 2 || embedding->shape[1] != config_.hidden) {
      return file_.corrupt_field(
          "tensor token_embd.weight",
          fmt::format("shape {} does not go with {} = {}", embedding->shape.to_string(),
                      names_.hidden, config_.hidden));
    }
    HR_RETURN_IF_ERROR(set_size(source_, "tensor token_embd.weight", embedding->shape[0],
                                kModelLimits.vocab_max, config_.vocab));
    HR_ASSIGN_OR_RETURN(const auto declared, file_.optional_int(names_.vocab));
    if (declared.value_or(config_.vocab) != config_.vocab) {
      return file_.corrupt_field(names_.vocab, fmt::format("{}, but token_embd.weight has {} rows",
                                                           *declared, config_.vocab));
    }
    HR_ASSIGN_OR_RETURN(const auto tokens, file_.optional_array("tokenizer.ggml.tokens"));
    if (tokens && tokens->size() > static_cast<size_t>(config_.vocab)) {
      return file_.corrupt_field("tokenizer.ggml.tokens",
                                 fmt::format("{} tokens, but token_embd.weight has {} rows",
                                             tokens->size(), config_.vocab));
    }
    return ok_status();
  }

  Status read_end_ids() {
    for (const std::string_view name :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
          "tokenizer.ggml.eom_token_id"}) {
      HR_ASSIGN_OR_RETURN(const auto id, file_.optional_int(name));
      if (id) HR_RETURN_IF_ERROR(set_end_ids(source_, name, {*id}, config_));
    }
    return ok_status();
  }

  const GgufFile& file_;
  const Source source_;
  const std::string prefix_;
  FieldNames names_;
  ModelConfig config_;
};

// ---- config.json --------------------------------------------------------------------------------

class JsonConfigReader {
 public:
  JsonConfigReader(const Json& json, const Json& generation, std::string_view path)
      : json_(json), generation_(generation), source_{path} {}

  Result<ModelConfig> read() {
    if (!json_.is_object()) return source_.corrupt_field("config", "is no JSON object");
    HR_RETURN_IF_ERROR(read_architecture());
    HR_RETURN_IF_ERROR(refuse_unknown_features());
    HR_RETURN_IF_ERROR(read_sizes());
    HR_RETURN_IF_ERROR(read_constants());
    HR_RETURN_IF_ERROR(check_relations(source_, names_, config_));
    HR_RETURN_IF_ERROR(read_end_ids());
    return std::move(config_);
  }

 private:
  // A member that is there and not null.
  const Json* find(std::string_view name) const {
    const Json* member = json_.find(name);
    return member == nullptr || member->is_null() ? nullptr : member;
  }
  Status wrong_type(std::string_view name, const Json& member, std::string_view expected) const {
    return source_.corrupt_field(name,
                                 fmt::format("is {}, expected {}", member.type_name(), expected));
  }

  Status read_architecture() {
    const Json* list = find("architectures");
    if (list == nullptr) return source_.corrupt_field("architectures", "missing");
    if (!list->is_array() || list->as_array().empty() || !list->as_array()[0].is_string()) {
      return source_.corrupt_field("architectures", "is no list of names");
    }
    const std::string& name = list->as_array()[0].as_string();
    if (name != "LlamaForCausalLM") {
      return source_.unsupported_field(
          "architectures",
          fmt::format("\"{}\" is not supported (known: LlamaForCausalLM)", printable(name)));
    }
    config_.architecture = "llama";
    return ok_status();
  }

  Status refuse_unknown_features() const {
    if (const Json* act = find("hidden_act");
        act != nullptr && (!act->is_string() || act->as_string() != "silu")) {
      return source_.unsupported_field("hidden_act", "only \"silu\" is supported");
    }
    // "rope_scaling": {"rope_type": "default"} is how newer files say "none".
    if (const Json* scaling = find("rope_scaling"); scaling != nullptr) {
      const Json* type = scaling->find("rope_type");
      if (type == nullptr || !type->is_string() || type->as_string() != "default") {
        return source_.unsupported_field("rope_scaling",
                                         "scaled rotary positions are not supported yet");
      }
    }
    for (const std::string_view name : {"attention_bias", "mlp_bias"}) {
      const Json* bias = find(name);
      if (bias != nullptr && (!bias->is_bool() || bias->as_bool())) {
        return source_.unsupported_field(name, "biases are not supported yet");
      }
    }
    return ok_status();
  }

  Status read_size(const std::string& name, int32_t value_max, int32_t& size) const {
    const Json* member = find(name);
    if (member == nullptr) return source_.corrupt_field(name, "missing");
    if (!member->is_int()) return wrong_type(name, *member, "an integer");
    return set_size(source_, name, member->as_int(), value_max, size);
  }
  Status read_size_or(const std::string& name, int32_t fallback, int32_t value_max,
                      int32_t& size) const {
    if (find(name) != nullptr) return read_size(name, value_max, size);
    size = fallback;
    return ok_status();
  }

  Status read_sizes() {
    HR_RETURN_IF_ERROR(read_size(names_.hidden, kModelLimits.hidden_max, config_.hidden));
    HR_RETURN_IF_ERROR(read_size(names_.layers, kModelLimits.layers_max, config_.layers));
    HR_RETURN_IF_ERROR(read_size(names_.ffn, kModelLimits.ffn_max, config_.ffn));
    HR_RETURN_IF_ERROR(read_size(names_.vocab, kModelLimits.vocab_max, config_.vocab));
    HR_RETURN_IF_ERROR(read_size(names_.heads, kModelLimits.heads_max, config_.heads));
    HR_RETURN_IF_ERROR(
        read_size_or(names_.kv_heads, config_.heads, kModelLimits.heads_max, config_.kv_heads));
    HR_RETURN_IF_ERROR(read_size_or(names_.context_length, 2048, kModelLimits.context_length_max,
                                    config_.context_length));
    if (find(names_.head_dim) != nullptr) {
      HR_RETURN_IF_ERROR(read_size(names_.head_dim, kModelLimits.head_dim_max, config_.head_dim));
    } else {
      HR_RETURN_IF_ERROR(derive_head_dim(source_, names_, config_));
    }
    config_.rope_dim = config_.head_dim;
    return ok_status();
  }

  Result<double> number_or(std::string_view name, double fallback) const {
    const Json* member = find(name);
    if (member == nullptr) return fallback;
    if (!member->is_number()) return wrong_type(name, *member, "a number");
    return member->as_double();
  }

  // Defaults are those of the Hugging Face class.
  Status read_constants() {
    HR_ASSIGN_OR_RETURN(const double eps, number_or(names_.rms_eps, 1e-6));
    HR_ASSIGN_OR_RETURN(config_.rope_theta, number_or(names_.rope_theta, 10000.0));
    config_.rms_eps = static_cast<float>(eps);
    if (const Json* tied = find("tie_word_embeddings")) {
      if (!tied->is_bool()) return wrong_type("tie_word_embeddings", *tied, "a boolean");
      config_.tied_embeddings = tied->as_bool();
    }
    return ok_status();
  }

  Status read_end_ids() {
    constexpr std::string_view kField = "eos_token_id";
    for (const Json* json : {&json_, &generation_}) {
      const Json* member = json->find(kField);
      if (member == nullptr || member->is_null()) continue;
      const Json::Array list = member->is_array() ? member->as_array() : Json::Array{*member};
      std::vector<int64_t> ids;
      for (const Json& id : list) {
        if (!id.is_int()) return wrong_type(kField, id, "an integer or a list of integers");
        ids.push_back(id.as_int());
      }
      HR_RETURN_IF_ERROR(set_end_ids(source_, kField, ids, config_));
    }
    return ok_status();
  }

  const Json& json_;
  const Json& generation_;
  const Source source_;
  const FieldNames names_{.hidden = "hidden_size",
                          .layers = "num_hidden_layers",
                          .heads = "num_attention_heads",
                          .kv_heads = "num_key_value_heads",
                          .head_dim = "head_dim",
                          .ffn = "intermediate_size",
                          .vocab = "vocab_size",
                          .context_length = "max_position_embeddings",
                          .rms_eps = "rms_norm_eps",
                          .rope_theta = "rope_theta",
                          .rope_dim = "head_dim"};
  ModelConfig config_;
};

Result<Json> read_json_file(const std::string& path) {
  HR_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const auto bytes = file->bytes();
  if (bytes.size() > kConfigBytesMax) {
    return corrupt(fmt::format("{}: {} bytes, a configuration has at most {}", path, bytes.size(),
                               kConfigBytesMax));
  }
  auto json = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!json.ok()) return json.status().with_context(path);
  return json;
}

}  // namespace

Result<ModelConfig> model_config_from_gguf(const GgufFile& file) {
  HR_ASSIGN_OR_RETURN(const std::string_view architecture,
                      file.require_string("general.architecture"));
  if (architecture != "llama") {
    return file.unsupported_field(
        "general.architecture",
        fmt::format("\"{}\" is not supported (known: llama)", printable(architecture)));
  }
  return GgufConfigReader(file, architecture).read();
}

Result<ModelConfig> model_config_from_json(const Json& config, const Json& generation,
                                           std::string_view path) {
  return JsonConfigReader(config, generation, path).read();
}

Result<ModelConfig> model_config_from_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path config_path =
      fs::is_directory(path, ignored) ? fs::path(path) / "config.json" : fs::path(path);
  HR_ASSIGN_OR_RETURN(const Json config, read_json_file(config_path.string()));
  const fs::path generation_path = config_path.parent_path() / "generation_config.json";
  Json generation;
  if (fs::exists(generation_path, ignored)) {
    HR_ASSIGN_OR_RETURN(generation, read_json_file(generation_path.string()));
  }
  return model_config_from_json(config, generation, config_path.string());
}

}  // namespace headrace
