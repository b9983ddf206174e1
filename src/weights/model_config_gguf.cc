// ModelConfig from GGUF metadata, with the keys that llama.cpp's converter writes.
#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "weights/encoder_config.h"
#include "weights/gemma_families.h"
#include "weights/gpt_families.h"
#include "weights/kimi_linear_family.h"
#include "weights/kin_families.h"
#include "weights/latent_families.h"
#include "weights/llama4_family.h"
#include "weights/mamba_families.h"
#include "weights/minimax_family.h"
#include "weights/model_config.h"
#include "weights/model_family.h"
#include "weights/qwen35_families.h"
#include "weights/rwkv_family.h"
#include "weights/window_families.h"

namespace headrace {
namespace {

class GgufConfigReader {
 public:
  GgufConfigReader(const GgufFile& file, const ModelFamily& family)
      : file_(file), family_(family), source_{file.name(), &family, true} {
    config_.architecture = architecture_of_gguf(family.architecture);
    config_.rope_theta = 1e4;
  }

  Result<ModelConfig> read() {
    HR_RETURN_IF_ERROR(refuse_unknown_features());
    if (family_.other_mixer == LayerMixer::kDeltaNet && family_.has_experts()) {
      config_.ffn = 1;  // no layer has a dense network, and files need not say its width
    }
    HR_RETURN_IF_ERROR(read_fields(common_fields()));
    HR_RETURN_IF_ERROR(read_fields(family_.fields));
    HR_RETURN_IF_ERROR(leave_out_drafting_layers());
    HR_RETURN_IF_ERROR(read_vocab());
    HR_RETURN_IF_ERROR(read_sliding_layers());
    HR_RETURN_IF_ERROR(read_rope_scaling());
    HR_ASSIGN_OR_RETURN(const auto parallel, file_.optional_bool(key("use_parallel_residual")));
    config_.mixers.parallel = parallel.value_or(false);
    read_tensors();
    HR_RETURN_IF_ERROR(read_expert_rules());
    HR_RETURN_IF_ERROR(read_gguf_kimi_linear(file_, source_, config_));
    HR_RETURN_IF_ERROR(read_gguf_minimax(file_, source_, config_));
    HR_RETURN_IF_ERROR(read_gguf_delta_net(file_, source_, config_));
    read_gguf_kin(file_, config_);
    HR_RETURN_IF_ERROR(read_gguf_windowed(file_, source_, config_));
    HR_RETURN_IF_ERROR(read_latent());
    HR_RETURN_IF_ERROR(read_gguf_key_index(file_, source_, config_));
    if (has_state_space(family_)) {
      HR_RETURN_IF_ERROR(read_gguf_state_space(file_, source_, network_widths_, config_));
    }
    if (family_.other_mixer == LayerMixer::kRwkv7) {
      HR_RETURN_IF_ERROR(read_gguf_rwkv7(file_, source_, config_));
    }
    if (is_layered_gemma(family_.architecture)) {
      HR_RETURN_IF_ERROR(read_gguf_layered_gemma(file_, source_, config_));
    }
    HR_RETURN_IF_ERROR(read_gguf_tuned_queries(file_, config_));
    HR_RETURN_IF_ERROR(finish_config(source_, config_));
    HR_RETURN_IF_ERROR(check_value_length());
    HR_RETURN_IF_ERROR(read_end_ids());
    return std::move(config_);
  }

 private:
  std::string key(std::string_view name) const {
    return fmt::format("{}.{}", family_.architecture, name);
  }

  // What a file can say that would change its arithmetic.
  Status refuse_unknown_features() const {
    HR_ASSIGN_OR_RETURN(const auto experts, file_.optional_int(key("expert_count")));
    if (experts.value_or(0) != 0 && !family_.has_experts()) {
      return file_.unsupported_field(key("expert_count"),
                                     "mixtures of experts of this architecture are not supported");
    }
    if (has_no_gguf(family_.architecture)) {
      return file_.unsupported_field(
          "general.architecture",
          fmt::format("GGUF files of {} are not supported: use the model's safetensors",
                      family_.architecture));
    }
    HR_ASSIGN_OR_RETURN(const auto causal, file_.optional_bool(key("attention.causal")));
    if (!causal.value_or(true)) {
      return file_.unsupported_field(key("attention.causal"),
                                     "attention to later tokens is not supported");
    }
    HR_ASSIGN_OR_RETURN(const auto clamp, file_.optional_float(key("attention.clamp_kqv")));
    if (clamp.value_or(0) != 0 && family_.architecture != "dbrx") {
      return file_.unsupported_field(key("attention.clamp_kqv"), "is not supported");
    }
    return ok_status();
  }

  Status read_fields(std::span<const ConfigField> fields) {
    for (const ConfigField& field : fields) {
      if (field.gguf.empty()) continue;
      HR_RETURN_IF_ERROR(read_field(field));
    }
    return ok_status();
  }

  // Files count the layers that draft among the others, behind which they stand.
  Status leave_out_drafting_layers() {
    config_.layers -= config_.mixers.drafting_layers;
    if (config_.layers > 0) return ok_status();
    const std::string name = source_.name_of(&MixerConfig::drafting_layers);
    return file_.corrupt_field(name, fmt::format("{} layers draft, and there is no other",
                                                 config_.mixers.drafting_layers));
  }

  // Layers of no key heads do not attend; the others have equally many.
  Status read_mixers(const std::string& name, const GgufArray& heads) {
    const auto layers = static_cast<size_t>(config_.layers);
    if (heads.size() != layers) {
      return file_.corrupt_field(name,
                                 fmt::format("{} numbers for {} layers", heads.size(), layers));
    }
    int64_t all = 0;
    for (size_t i = 0; i < layers; ++i) {
      const auto of_layer = heads.int_at(i);
      if (!of_layer || *of_layer < 0 || *of_layer > kModelLimits.heads_max) {
        return file_.corrupt_field(name, "is no list of numbers of heads");
      }
      config_.mixers.by_layer.push_back(*of_layer == 0 ? *family_.other_mixer
                                                       : LayerMixer::kAttention);
      if (*of_layer == 0) continue;
      if (all != 0 && *of_layer != all) {
        return file_.unsupported_field(name,
                                       fmt::format("layers of {} and of {} heads", all, *of_layer));
      }
      all = *of_layer;
    }
    config_.kv_heads = static_cast<int32_t>(all);
    return ok_status();
  }

  // Of layers that are a network or something else (Nemotron-H): 0 of those that are something
  // else. The others are equally wide.
  Status read_network_widths(const std::string& name, const GgufArray& widths) {
    for (size_t i = 0; i < std::min(widths.size(), static_cast<size_t>(config_.layers)); ++i) {
      const auto width = widths.int_at(i);
      if (!width || *width < 0 || *width > kModelLimits.ffn_max) {
        return file_.corrupt_field(name, "is no list of widths");
      }
      network_widths_.push_back(*width);
      config_.ffn = std::max(config_.ffn, static_cast<int32_t>(*width));
    }
    return ok_status();
  }

  Status read_field(const ConfigField& field) {
    const std::string name = source_.name_of(field);
    const GgufEntry* const entry = file_.find(name);
    if (family_.other_mixer && field.member == ConfigMember(&ModelConfig::kv_heads) &&
        entry != nullptr && std::holds_alternative<GgufArray>(entry->value)) {
      return read_mixers(name, std::get<GgufArray>(entry->value));
    }
    if (has_state_space(family_) && field.member == ConfigMember(&ModelConfig::ffn) &&
        entry != nullptr && std::holds_alternative<GgufArray>(entry->value)) {
      return read_network_widths(name, std::get<GgufArray>(entry->value));
    }
    if (entry != nullptr && std::holds_alternative<GgufArray>(entry->value) &&
        is_listed_by_layer(family_.architecture, field.member)) {
      return ok_status();
    }
    if (entry == nullptr) {
      if (is_missing(field, config_)) return file_.corrupt_field(name, "missing");
      return ok_status();
    }
    if (field.is_whole()) {
      HR_ASSIGN_OR_RETURN(const int64_t value, file_.require_int(name));
      return set_field(source_, field, static_cast<double>(value), config_);
    }
    HR_ASSIGN_OR_RETURN(const double value, file_.require_float(name));
    return set_field(source_, field, value, config_);
  }

  // The embedding's rows are the truth; the two other places that give the size must agree.
  Status read_vocab() {
    const std::string_view name = "tensor token_embd.weight";
    const GgufTensor* embedding = file_.find_tensor("token_embd.weight");
    if (embedding == nullptr) return file_.corrupt_field(name, "missing");
    if (embedding->shape.rank() != 2 || embedding->shape[1] != config_.hidden) {
      return file_.corrupt_field(
          name, fmt::format("shape {} does not go with {} = {}", embedding->shape.to_string(),
                            source_.name_of(&ModelConfig::hidden), config_.hidden));
    }
    const int64_t rows = embedding->shape[0];
    if (rows < 1 || rows > kModelLimits.vocab_max) {
      return file_.corrupt_field(
          name, fmt::format("{} is outside 1 to {}", rows, kModelLimits.vocab_max));
    }
    config_.vocab = static_cast<int32_t>(rows);
    HR_ASSIGN_OR_RETURN(const auto declared, file_.optional_int(key("vocab_size")));
    if (declared.value_or(rows) != rows) {
      return file_.corrupt_field(
          key("vocab_size"), fmt::format("{}, but token_embd.weight has {} rows", *declared, rows));
    }
    HR_ASSIGN_OR_RETURN(const auto tokens, file_.optional_array("tokenizer.ggml.tokens"));
    if (tokens && tokens->size() > static_cast<size_t>(rows)) {
      return file_.corrupt_field(
          "tokenizer.ggml.tokens",
          fmt::format("{} tokens, but token_embd.weight has {} rows", tokens->size(), rows));
    }
    return ok_status();
  }

  // A list of flags, one a layer, or a period n of which the last layer is full.
  Status read_sliding_layers() {
    const std::string name = key("attention.sliding_window_pattern");
    const GgufEntry* entry = file_.find(name);
    if (entry == nullptr) return ok_status();
    const auto layers = static_cast<size_t>(config_.layers);
    if (const auto* flags = std::get_if<GgufArray>(&entry->value)) {
      if (flags->size() < layers) {
        return file_.corrupt_field(name,
                                   fmt::format("{} flags for {} layers", flags->size(), layers));
      }
      for (size_t i = 0; i < layers; ++i) {
        const auto flag = flags->int_at(i);
        if (!flag) return file_.corrupt_field(name, "is no list of flags");
        config_.sliding_layers.push_back(*flag != 0);
      }
      return ok_status();
    }
    HR_ASSIGN_OR_RETURN(const int64_t period, file_.require_int(name));
    if (period < 0 || period > kModelLimits.layers_max) {
      return file_.corrupt_field(
          name, fmt::format("{} is outside 0 to {}", period, kModelLimits.layers_max));
    }
    for (size_t i = 0; i < layers; ++i) {
      config_.sliding_layers.push_back(period == 0 || (static_cast<int64_t>(i) + 1) % period != 0);
    }
    return ok_status();
  }

  Status read_rope_scaling() {
    RopeScaling& scaling = config_.rope_scaling;
    using Kind = RopeScaling::Kind;
    const std::string name = key("rope.scaling.type");
    HR_ASSIGN_OR_RETURN(const auto type, file_.optional_string(name));
    HR_ASSIGN_OR_RETURN(const auto legacy, file_.optional_float(key("rope.scale_linear")));
    HR_ASSIGN_OR_RETURN(const auto factor, file_.optional_float(key("rope.scaling.factor")));
    scaling.factor = factor.value_or(legacy.value_or(1.0));
    if (scaling.factor == 0) scaling.factor = 1;  // some writers' "none"
    if (type && *type == "linear") scaling.kind = Kind::kLinear;
    if (!type && scaling.factor != 1) scaling.kind = Kind::kLinear;
    if (type && *type == "yarn") scaling.kind = Kind::kYarn;
    if (type && *type == "longrope") scaling.kind = Kind::kLongRope;
    if (scaling.kind == Kind::kNone && type.value_or("none") != "none") {
      return file_.unsupported_field(
          name, fmt::format("\"{}\" is not supported (known: none, linear, yarn, longrope)",
                            printable(*type)));
    }
    // Phi-3's long files name no type: their tensors tell.
    if (file_.find_tensor("rope_factors_long.weight") != nullptr) scaling.kind = Kind::kLongRope;
    return read_scaling_numbers();
  }

  Status read_scaling_numbers() {
    RopeScaling& scaling = config_.rope_scaling;
    const auto number = [&](std::string_view name, double& value) -> Status {
      HR_ASSIGN_OR_RETURN(const auto given,
                          file_.optional_float(key(fmt::format("rope.scaling.{}", name))));
      if (given) value = *given;
      return ok_status();
    };
    HR_ASSIGN_OR_RETURN(const auto original,
                        file_.optional_int(key("rope.scaling.original_context_length")));
    if (original.value_or(0) < 0 || original.value_or(0) > kModelLimits.context_length_max) {
      return file_.corrupt_field(
          key("rope.scaling.original_context_length"),
          fmt::format("{} is outside 0 to {}", *original, kModelLimits.context_length_max));
    }
    // Of these config.json says so; a GGUF file does not.
    scaling.truncate = family_.architecture != "gpt-oss";
    scaling.original_context =
        original.value_or(0) > 0 ? static_cast<int32_t>(*original) : config_.context_length;
    HR_RETURN_IF_ERROR(number("attn_factor", scaling.attention_factor));
    HR_RETURN_IF_ERROR(number("yarn_beta_fast", scaling.beta_fast));
    HR_RETURN_IF_ERROR(number("yarn_beta_slow", scaling.beta_slow));
    for (const std::string_view name : {"yarn_ext_factor", "yarn_attn_factor"}) {
      double value = 1;
      HR_RETURN_IF_ERROR(number(name, value));
      if (value != 1) {
        return file_.unsupported_field(key(fmt::format("rope.scaling.{}", name)),
                                       fmt::format("{} is not supported, only 1", value));
      }
    }
    return ok_status();
  }

  // What the tensors that are there say of the arithmetic.
  void read_tensors() {
    const auto has = [&](std::string_view name) { return file_.find_tensor(name) != nullptr; };
    config_.tied_embeddings = !has("output.weight");
    config_.fused.qkv = has("blk.0.attn_qkv.weight");
    if (family_.architecture == "falcon") config_.mixers.parallel = true;
    if (family_.architecture == "bloom") config_.mixers.alibi_bias_max = 8;
    config_.mixers.norms_apart = has("blk.0.attn_norm_2.weight");
    config_.qkv_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
    config_.attention_out_bias = has("blk.0.attn_output.bias");
    config_.ffn_bias = has("blk.0.ffn_up.bias");
    config_.mixers.head_norms = has("blk.0.attn_q_norm.weight");
    config_.rope_scaling.divisors = has("rope_freqs.weight");
    const GgufTensor* classes = file_.find_tensor("cls.output.weight");
    if (classes != nullptr && classes->shape.rank() == 2) {
      config_.head.classes = static_cast<int32_t>(std::min<int64_t>(classes->shape[0], INT32_MAX));
    }
    const GgufTensor* up = file_.find_tensor("blk.0.ffn_up.weight");
    config_.fused.gate_up = !has("blk.0.ffn_gate.weight") && up != nullptr &&
                            up->shape.rank() == 2 && up->shape[0] == 2 * int64_t{config_.ffn};
    config_.qk_rows_interleaved = family_.gguf_rows_interleaved;
  }

  Status read_expert_rules() {
    ExpertConfig& experts = config_.experts;
    if (experts.count == 0) return ok_status();
    HR_ASSIGN_OR_RETURN(const auto normalised, file_.optional_bool(key("expert_weights_norm")));
    if (normalised) experts.normalised = *normalised;
    const std::string name = key("expert_gating_func");
    HR_ASSIGN_OR_RETURN(const auto scores, file_.optional_int(name));
    constexpr int64_t kSoftmax = 1, kSigmoid = 2;
    if (scores == kSoftmax) experts.scores = ExpertScores::kSoftmax;
    if (scores == kSigmoid) experts.scores = ExpertScores::kSigmoid;
    if (scores && !experts.scores) {
      return file_.unsupported_field(
          name, fmt::format("{} is not supported (known: 1, softmax, and 2, sigmoid)", *scores));
    }
    // Files of some writers have the width of experts in their tensors alone.
    const GgufTensor* up =
        file_.find_tensor(fmt::format("blk.{}.ffn_up_exps.weight", experts.dense_first));
    if (experts.width > 0 || up == nullptr || up->shape.rank() != 3) return ok_status();
    if (up->shape[1] < 1 || up->shape[1] > kModelLimits.ffn_max) {
      return file_.corrupt_field(
          "tensor " + printable(up->name),
          fmt::format("{} rows are outside 1 to {}", up->shape[1], kModelLimits.ffn_max));
    }
    experts.width = static_cast<int32_t>(up->shape[1]);
    return ok_status();
  }

  // Files of before 2025 have the sizes of heads where those of today have those of what is kept.
  Status read_latent() {
    LatentConfig& latent = config_.mixers.latent;
    if (latent.rank == 0) return ok_status();
    HR_ASSIGN_OR_RETURN(const auto value_length, file_.optional_int(key("attention.value_length")));
    if (latent.key_dim == 0) latent.key_dim = config_.head_dim;
    if (latent.value_dim == 0 && value_length.value_or(0) > 0) {
      latent.value_dim = static_cast<int32_t>(
          std::min<int64_t>(*value_length, int64_t{kModelLimits.head_dim_max} + 1));
    }
    if (latent.value_dim > kModelLimits.head_dim_max) {
      return file_.corrupt_field(
          key("attention.value_length"),
          fmt::format("{} is over {}", *value_length, kModelLimits.head_dim_max));
    }
    for (int32_t i = 0; i < config_.layers; ++i) {  // not all may attend
      const GgufTensor* const keys = file_.find_tensor(fmt::format("blk.{}.attn_k_b.weight", i));
      latent.joined = latent.joined && keys == nullptr;
    }
    // The first files say nothing of these two: DeepSeek V2's weights are not divided by their sum,
    // and where there is a bias of the choice, scores are sigmoids.
    ExpertConfig& experts = config_.experts;
    if (!experts.normalised) experts.normalised = false;
    const std::string bias = fmt::format("blk.{}.exp_probs_b.bias", experts.dense_first);
    if (!experts.scores && file_.find_tensor(bias) != nullptr) {
      experts.scores = ExpertScores::kSigmoid;
    }
    // YaRN's scale of scores: a tenth of it is in the file.
    HR_ASSIGN_OR_RETURN(const auto log_multiplier,
                        file_.optional_float(key("rope.scaling.yarn_log_multiplier")));
    config_.rope_scaling.mscale = config_.rope_scaling.mscale_all_dim =
        10 * log_multiplier.value_or(0);
    const bool by_two_best =
        experts.scores == ExpertScores::kSigmoid || config_.architecture == "mistral4";
    if (by_two_best || experts.groups <= 1) return ok_status();
    return file_.unsupported_field(key("expert_group_count"),
                                   "groups by their best expert (DeepSeek V2) are not supported");
  }

  Status check_value_length() const {
    if (config_.mixers.latent.rank > 0 || config_.mixers.head_sizes.value_dim > 0) {
      return ok_status();
    }
    const std::string name = key("attention.value_length");
    HR_ASSIGN_OR_RETURN(const auto value_length, file_.optional_int(name));
    const int32_t key_length = config_.mixers.gemma.full_head_dim > 0
                                   ? config_.mixers.gemma.full_head_dim
                                   : config_.head_dim;
    if (value_length.value_or(key_length) == key_length) return ok_status();
    return file_.unsupported_field(
        name, fmt::format("{} differs from the key length {}", *value_length, key_length));
  }

  Status read_end_ids() {
    for (const std::string_view name :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
          "tokenizer.ggml.eom_token_id"}) {
      HR_ASSIGN_OR_RETURN(const auto id, file_.optional_int(name));
      if (id) HR_RETURN_IF_ERROR(set_end_ids(source_, name, std::span(&*id, 1), config_));
    }
    return ok_status();
  }

  const GgufFile& file_;
  const ModelFamily& family_;
  const ConfigSource source_;
  ModelConfig config_;
  std::vector<int64_t> network_widths_;  // [layers] or empty
};

}  // namespace

Result<ModelConfig> model_config_from_gguf(const GgufFile& file) {
  HR_ASSIGN_OR_RETURN(const auto name, file.optional_string("general.architecture"));
  if (is_gguf_encoder(name.value_or(""))) {
    return file.unsupported_field(
        "general.architecture",
        fmt::format("\"{}\" is an encoder, which generates no text: headrace serve answers "
                    "/v1/embeddings with it",
                    *name));
  }
  HR_ASSIGN_OR_RETURN(const ModelFamily* family, find_gguf_family(file));
  return GgufConfigReader(file, *family).read();
}

}  // namespace headrace
