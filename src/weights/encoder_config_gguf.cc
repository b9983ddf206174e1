// EncoderConfig from GGUF metadata, with the keys that llama.cpp's converter writes. What it does
// not say the tensors do: which biases there are, and how large the tables.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "weights/encoder_config.h"
#include "weights/model_config.h"

namespace headrace {
namespace {

// general.architecture, and what the family is called here.
struct GgufEncoder {
  std::string_view name, architecture;
};
constexpr GgufEncoder kGgufEncoders[] = {{"bert", "bert"},
                                         {"nomic-bert", "nomic-bert"},
                                         {"jina-bert-v2", "jina-bert-v2"},
                                         {"modern-bert", "modernbert"}};
// Encoders all the same, which are refused by name.
constexpr std::string_view kOtherGgufEncoders[] = {"nomic-bert-moe", "neo-bert", "jina-bert-v3",
                                                   "eurobert"};

class GgufEncoderReader {
 public:
  GgufEncoderReader(const GgufFile& file, const GgufEncoder& family)
      : file_(file), name_(family.name) {
    config_.architecture = family.architecture;
  }

  Result<EncoderConfig> read() {
    HR_RETURN_IF_ERROR(read_sizes());
    if (config_.architecture == "modernbert") {
      HR_RETURN_IF_ERROR(read_modern());
    } else if (config_.architecture != "bert") {
      HR_RETURN_IF_ERROR(read_gated());
    }
    HR_RETURN_IF_ERROR(read_positions());
    HR_RETURN_IF_ERROR(read_rows());
    return std::move(config_);
  }

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", name_, name); }
  bool has_tensor(std::string_view name) const { return file_.find_tensor(name) != nullptr; }

  Status read_size(std::string_view name, int32_t high, int32_t& size) const {
    HR_ASSIGN_OR_RETURN(const int64_t value, file_.require_int(key(name)));
    if (value < 1 || value > high) {
      return file_.corrupt_field(key(name), fmt::format("{} is not in [1, {}]", value, high));
    }
    size = static_cast<int32_t>(value);
    return ok_status();
  }

  // Of a table whose rows are of the model's width; 0: there is none.
  Status read_table(std::string_view name, int32_t high, int32_t& rows) const {
    const GgufTensor* const table = file_.find_tensor(name);
    if (table == nullptr) return ok_status();
    const int64_t count = table->shape.rank() == 2 ? table->shape[0] : 1;
    if (count < 1 || count > high) {
      return file_.corrupt_field(fmt::format("tensor {}", name),
                                 fmt::format("{} rows, not 1 to {}", count, high));
    }
    rows = static_cast<int32_t>(count);
    return ok_status();
  }

  Status read_number(std::string_view name, double low, double high, double& number) const {
    HR_ASSIGN_OR_RETURN(const auto value, file_.optional_float(key(name)));
    if (!value) return ok_status();
    if (!(*value > low && *value < high)) {
      return file_.corrupt_field(key(name),
                                 fmt::format("{} is not between {} and {}", *value, low, high));
    }
    number = *value;
    return ok_status();
  }

  Status read_sizes() {
    constexpr const ModelLimits& kLimits = kModelLimits;
    HR_RETURN_IF_ERROR(read_size("embedding_length", kLimits.hidden_max, config_.hidden));
    HR_RETURN_IF_ERROR(read_size("block_count", kLimits.layers_max, config_.layers));
    HR_RETURN_IF_ERROR(read_size("attention.head_count", kLimits.heads_max, config_.heads));
    HR_RETURN_IF_ERROR(read_size("feed_forward_length", kLimits.ffn_max, config_.ffn));
    HR_RETURN_IF_ERROR(read_size("context_length", kPositionsMax, config_.length_max));
    HR_RETURN_IF_ERROR(read_table("token_embd.weight", kLimits.vocab_max, config_.vocab));
    if (config_.vocab == 0) return file_.corrupt_field("tensor token_embd.weight", "missing");
    HR_RETURN_IF_ERROR(read_table("token_types.weight", 1024, config_.token_types));
    double eps = 0;
    HR_RETURN_IF_ERROR(read_number("attention.layer_norm_epsilon", 0, 1, eps));
    if (eps == 0) return file_.corrupt_field(key("attention.layer_norm_epsilon"), "missing");
    config_.norm_eps = static_cast<float>(eps);
    if (config_.hidden % config_.heads == 0) return ok_status();
    return file_.corrupt_field(key("attention.head_count"), "does not divide embedding_length");
  }

  // A table of learned positions begins with a text's first token.
  Status read_positions() {
    if (config_.modern || config_.gated) {
      config_.positions = config_.length_max;
      return ok_status();
    }
    HR_RETURN_IF_ERROR(read_table("position_embd.weight", kPositionsMax, config_.positions));
    if (config_.positions == 0) {
      return file_.corrupt_field("tensor position_embd.weight", "missing");
    }
    config_.length_max = std::min(config_.length_max, config_.positions);
    return ok_status();
  }

  Status even_heads() const {
    if (config_.head_dim() % 2 == 0) return ok_status();
    return file_.corrupt_field(key("attention.head_count"), "makes heads of an odd width");
  }

  Status read_gated() {
    GatedEncoder& gated = config_.gated.emplace();
    gated.qkv_joined = has_tensor("blk.0.attn_qkv.weight");
    gated.qkv_bias = has_tensor(gated.qkv_joined ? "blk.0.attn_qkv.bias" : "blk.0.attn_q.bias");
    gated.out_bias = has_tensor("blk.0.attn_output.bias");
    gated.gate_apart = has_tensor("blk.0.ffn_gate.weight");
    gated.up_bias = has_tensor("blk.0.ffn_up.bias");
    gated.down_bias = has_tensor("blk.0.ffn_down.bias");
    if (config_.architecture == "jina-bert-v2") {
      double bias = 8;
      HR_RETURN_IF_ERROR(read_number("attention.max_alibi_bias", 0, 1e3, bias));
      gated.alibi_bias_max = static_cast<float>(bias);
      return ok_status();
    }
    gated.silu = true;
    gated.theta = 10000;
    HR_RETURN_IF_ERROR(read_number("rope.freq_base", 1, 1e12, gated.theta));
    return even_heads();
  }

  Status read_modern() {
    ModernEncoder& modern = config_.modern.emplace();
    modern.theta = 160000;
    modern.local_theta = 10000;
    HR_RETURN_IF_ERROR(read_number("rope.freq_base", 1, 1e12, modern.theta));
    HR_RETURN_IF_ERROR(read_number("rope.freq_base_swa", 1, 1e12, modern.local_theta));
    int32_t local = 0, every = 3;
    HR_RETURN_IF_ERROR(read_size("attention.sliding_window", 1 << 24, local));
    modern.window = local / 2;
    constexpr std::string_view kEvery = "attention.sliding_window_pattern";
    if (file_.find(key(kEvery)) != nullptr) HR_RETURN_IF_ERROR(read_size(kEvery, 1 << 20, every));
    for (int32_t i = 0; i < config_.layers; ++i) modern.local.push_back(i % every != 0);
    HR_ASSIGN_OR_RETURN(const auto activation, file_.optional_string(key("hidden_activation")));
    if (activation && *activation != "gelu") {
      return file_.unsupported_field(key("hidden_activation"), "only \"gelu\" is supported");
    }
    modern.attention_bias = has_tensor("blk.0.attn_qkv.bias");
    modern.ffn_bias = has_tensor("blk.0.ffn_up.bias");
    modern.norm_bias = has_tensor("output_norm.bias");
    modern.head_bias = has_tensor("cls.bias");
    return even_heads();
  }

  // Which rows become a text's vector, or the logits of its classes.
  Status read_rows() {
    HR_ASSIGN_OR_RETURN(const auto read, pooling_config_from_gguf(file_));
    // As in a folder that says nothing of it.
    const PoolingConfig rows =
        read.value_or(PoolingConfig{.pooling = Pooling::kMean, .normalise = true});
    // A file does not say what its classes are made from: here whoever converts ModernBERTs takes
    // the mean, whatever the folder says.
    const Pooling of_classes = config_.modern ? Pooling::kMean : Pooling::kFirst;
    config_.pooling = rows.head ? of_classes : rows.pooling;
    config_.normalise = rows.normalise;
    config_.head = rows.head;
    if (!config_.head || has_tensor("cls.weight")) return ok_status();
    return file_.unsupported_field(
        "tensor cls.weight",
        "missing: whoever converted the model left out its pooler, and without it its scores are "
        "others; use the model's folder");
  }

  static constexpr int32_t kPositionsMax = 1 << 16;  // as of folders

  const GgufFile& file_;
  const std::string name_;
  EncoderConfig config_;
};

const GgufEncoder* find_gguf_encoder(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kGgufEncoders), std::end(kGgufEncoders),
                   [&](const GgufEncoder& known) { return known.name == name; });
  return found == std::end(kGgufEncoders) ? nullptr : found;
}

}  // namespace

bool is_gguf_encoder(std::string_view architecture) {
  return find_gguf_encoder(architecture) != nullptr;
}

Result<std::optional<EncoderConfig>> encoder_config_from_gguf(const GgufFile& file) {
  HR_ASSIGN_OR_RETURN(const auto name, file.optional_string("general.architecture"));
  if (!name) return std::optional<EncoderConfig>();
  if (const GgufEncoder* const family = find_gguf_encoder(*name)) {
    HR_ASSIGN_OR_RETURN(EncoderConfig config, GgufEncoderReader(file, *family).read());
    return std::optional(std::move(config));
  }
  if (std::find(std::begin(kOtherGgufEncoders), std::end(kOtherGgufEncoders), *name) ==
      std::end(kOtherGgufEncoders)) {
    return std::optional<EncoderConfig>();
  }
  return file.unsupported_field("general.architecture",
                                fmt::format("{} is an encoder that is not supported", *name));
}

}  // namespace headrace
