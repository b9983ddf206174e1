// The report for people.
#include <algorithm>

#include <fmt/format.h>

#include "apps/inspect_report.h"
#include "models/model.h"
#include "weights/generation_config.h"
#include "weights/gguf.h"

namespace headrace {
namespace {

std::string size_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.2f} GiB", value / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.1f} KiB", value / (1 << 10));
  return fmt::format("{} bytes", bytes);
}

// 134515008 -> "134,515,008"
std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  for (auto i = static_cast<int64_t>(digits.size()) - 3; i > 0; i -= 3) {
    digits.insert(static_cast<size_t>(i), ",");
  }
  return digits;
}

void add_line(std::string& text, std::string_view label, std::string_view value) {
  text += fmt::format("  {:<15}{}\n", label, value);
}

std::string special_text(const Vocab& vocab, std::string_view label, TokenId id) {
  if (id < 0) return "";
  return fmt::format(", {} {} \"{}\"", label, id, printable(vocab.tokens[static_cast<size_t>(id)]));
}

std::string vocab_text(const Vocab& vocab) {
  std::string text = printable(vocab.model);
  if (!vocab.pre.empty()) text += fmt::format(" ({})", printable(vocab.pre));
  text += fmt::format(", {} tokens", grouped(static_cast<int64_t>(vocab.tokens.size())));
  if (vocab.merge_count() > 0) {
    text += fmt::format(", {} merges", grouped(static_cast<int64_t>(vocab.merge_count())));
  }
  text += special_text(vocab, "bos", vocab.bos) + special_text(vocab, "eos", vocab.eos) +
          special_text(vocab, "unk", vocab.unk) + special_text(vocab, "pad", vocab.pad);
  text += vocab.add_bos ? ", adds bos" : "";
  text += vocab.add_eos ? ", adds eos" : "";
  text += ", ends at";
  for (const TokenId id : vocab.end_ids) text += fmt::format(" {}", id);
  return text;
}

std::string template_text(const ModelText& text) {
  if (text.template_source.empty()) return "none";
  return fmt::format("{} bytes{}", text.template_source.size(),
                     text.chat_template ? "" : ", does not compile");
}

std::string rope_text(const ModelConfig& config) {
  std::string text = fmt::format("base {}, {} of {} dimensions", config.rope_theta, config.rope_dim,
                                 config.head_dim);
  if (config.rope_theta_local > 0) {
    text += fmt::format(", base {} in sliding layers", config.rope_theta_local);
  }
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind != RopeScaling::Kind::kNone) {
    text += fmt::format(", scaled: {}", rope_scaling_name(scaling.kind));
    if (scaling.factor != 1) text += fmt::format(" by {}", scaling.factor);
    if (scaling.original_context > 0) {
      text += fmt::format(", trained on {} tokens", scaling.original_context);
    }
  }
  if (config.rope_scaling.divisors) text += ", divisors of its frequencies in rope_freqs.weight";
  return text;
}

std::string soft_cap_text(const ModelConfig& config) {
  std::string text;
  if (config.attention_soft_cap > 0) text += fmt::format("scores {}", config.attention_soft_cap);
  if (config.logit_soft_cap > 0) {
    text += fmt::format("{}logits {}", text.empty() ? "" : ", ", config.logit_soft_cap);
  }
  return text;
}

std::string_view output_matrix(const ModelConfig& config) {
  if (!config.head.matrix) return "no";
  return config.tied_embeddings ? "also the" : "separate";
}

std::string expert_text(const ExpertConfig& experts) {
  std::string text =
      fmt::format("{} of width {}, {} a token", experts.count, experts.width, experts.used);
  if (experts.shared_width > 0) {
    text += fmt::format(", and one of width {} that all take", experts.shared_width);
  }
  return text;
}

std::string attention_text(const ModelConfig& config) {
  if (!any_attends(config)) return "none: layers keep states";
  const LatentConfig& latent = config.mixers.latent;
  if (latent.rank > 0) {
    return fmt::format("{} query heads, a latent of {} + {}", config.heads, latent.rank,
                       latent.rope_dim);
  }
  return fmt::format("{} query heads, {} key/value heads of {}", config.heads, config.kv_heads,
                     config.head_dim);
}

bool learns_positions(const ModelConfig& config) {
  const auto architecture = find_architecture(config.architecture);
  return architecture.ok() &&
         std::ranges::any_of((*architecture)->tensors(config), [](const TensorSpec& tensor) {
           return tensor.name == "position_embd.weight";
         });
}

std::string position_text(const ModelConfig& config) {
  if (learns_positions(config)) return fmt::format("learned, {}", config.context_length);
  if (!config.mixers.rotates || !any_attends(config)) return "none";
  return fmt::format("RoPE, {}", rope_text(config));
}

// Of layers that are one part, some are networks, or none is.
std::string network_text(const ModelConfig& config) {
  const auto& mixers = config.mixers;
  if (mixers.one_part && std::ranges::count(mixers.by_layer, LayerMixer::kNone) == 0) {
    return "no feed-forward";
  }
  return fmt::format("feed-forward {}", config.ffn);
}

void add_model_lines(std::string& text, const ModelConfig& config) {
  add_line(text, "layers",
           fmt::format("{}, hidden {}, {}", config.layers, config.hidden, network_text(config)));
  if (config.experts.count > 0) add_line(text, "experts", expert_text(config.experts));
  add_line(text, "attention", attention_text(config));
  add_line(text, "positions", position_text(config));
  if (const std::string caps = soft_cap_text(config); !caps.empty()) {
    add_line(text, "soft caps", caps);
  }
  add_line(text, "embedding",
           fmt::format("{} rows, {} output matrix", grouped(config.vocab), output_matrix(config)));
  add_line(text, "context", fmt::format("{} tokens", config.context_length));
}

void add_window_line(std::string& text, const InspectReport& report) {
  for (const KvShare& share : report.kv) {
    if (share.window == 0) continue;
    add_line(text, "window",
             fmt::format("{} tokens in {} of {} layers", share.window, share.layers,
                         report.weights.config.layers));
  }
}

void add_tensor_lines(std::string& text, const InspectReport& report) {
  add_line(text, "tensors",
           fmt::format("{}, {}", report.tensor_count, size_text(report.tensor_bytes)));
  for (const TypeShare& share : report.types) {
    add_line(text, "",
             fmt::format("{:<8}{:>6} {:>12}{}", share.name, share.tensors, size_text(share.bytes),
                         share.readable ? "" : "  not supported yet"));
  }
}

void add_memory_lines(std::string& text, const InspectReport& report) {
  if (report.kv.empty() && report.state_bytes == 0) return;
  if (!report.kv.empty()) {
    add_line(text, "KV cache",
             fmt::format("{} a token in f16; {} for one sequence of {} tokens",
                         size_text(report.kv_token_bytes()), size_text(report.kv_context_bytes),
                         report.context));
  }
  if (report.state_bytes > 0) {
    add_line(text, "states",
             fmt::format("{} a sequence, whatever its length", size_text(report.state_bytes)));
  }
  if (report.kv.size() > 1 || (!report.kv.empty() && report.kv[0].window > 0)) {
    for (const KvShare& share : report.kv) {
      add_line(text, "",
               fmt::format("{} layers keep {}, {} a token", share.layers,
                           share.window > 0 ? fmt::format("the last {} tokens", share.window)
                                            : "the whole context",
                           size_text(share.token_bytes)));
    }
    add_line(text, "",
             fmt::format("in {} groups of layers, pages of {}: {} of the {} are attended to",
                         report.kv_group_count, size_text(report.kv_page_bytes),
                         size_text(report.kv_seen_bytes), size_text(report.kv_context_bytes)));
  }
  add_line(
      text, "memory",
      fmt::format("{} for weights and one sequence of {} tokens",
                  size_text(report.tensor_bytes + report.state_bytes + report.kv_context_bytes),
                  report.context));
}

void add_tensor_list(std::string& text, const WeightSource& weights) {
  text += "\n";
  for (const std::string_view name : weights.names()) {
    const WeightInfo info = *weights.info(name);
    text += fmt::format("  {:<32} {:<8} {:<18} {:>12}\n", printable(name), info.type,
                        info.shape.to_string(), size_text(info.bytes));
  }
}

}  // namespace

std::string text_report(const InspectReport& report, bool list_tensors) {
  std::string text = fmt::format("{}\n", report.source->path());
  add_line(text, "format",
           fmt::format("{}, {}", report.title.format, size_text(report.weights.file_bytes)));
  if (!report.title.name.empty()) add_line(text, "name", report.title.name);
  add_line(text, "architecture",
           report.title.architecture.empty() ? "not given" : report.title.architecture);
  if (report.weights.architecture != nullptr) add_model_lines(text, report.weights.config);
  add_window_line(text, report);
  add_line(text, "parameters", grouped(report.weights.parameter_count));
  add_line(text, "tokenizer", report.text.vocab ? vocab_text(*report.text.vocab) : "none");
  add_line(text, "chat template", template_text(report.text));
  if (const std::string sampling = to_string(report.sampling); !sampling.empty()) {
    add_line(text, "sampling", sampling);
  }
  add_tensor_lines(text, report);
  add_memory_lines(text, report);
  add_line(text, "runs here", report.problems.empty() ? "yes" : "no");
  for (const std::string& problem : report.problems) add_line(text, "", problem);
  if (list_tensors && report.weights.weights != nullptr) {
    add_tensor_list(text, *report.weights.weights);
  }
  return text;
}

}  // namespace headrace
