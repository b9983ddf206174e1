#include "apps/inspect.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "apps/gguf_vocab.h"
#include "apps/model_files.h"
#include "base/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace headrace {
namespace {

constexpr int64_t kHalfBytes = 2;  // the cache's type

struct TypeShare {
  std::string_view name;
  bool readable = false;
  int64_t tensors = 0;
  int64_t bytes = 0;
};

// Everything that the report shows, in either form.
struct Report {
  std::shared_ptr<const GgufFile> file;
  std::string architecture;
  std::string name;
  std::optional<ModelConfig> config;  // empty: see problems
  std::optional<Vocab> vocab;
  std::string_view chat_template;
  int64_t parameters = 0;
  int64_t tensor_bytes = 0;
  std::vector<TypeShare> types;       // the most bytes first
  int64_t context = 0;                // of the memory plan
  std::vector<std::string> problems;  // why it does not run here; empty: it does

  int64_t kv_token_bytes() const {
    return config ? 2 * kHalfBytes * config->layers * config->kv_heads * config->head_dim : 0;
  }
};

std::vector<TypeShare> type_shares(const GgufFile& file) {
  std::map<uint32_t, TypeShare> shares;
  for (const GgufTensor& tensor : file.plan().tensors) {
    TypeShare& share = shares[tensor.type->id];
    share.name = tensor.type->name;
    share.readable = tensor.type->dtype.has_value();
    ++share.tensors;
    share.bytes += static_cast<int64_t>(tensor.bytes.size());
  }
  std::vector<TypeShare> sorted;
  for (const auto& [id, share] : shares) sorted.push_back(share);
  std::sort(sorted.begin(), sorted.end(),
            [](const TypeShare& a, const TypeShare& b) { return a.bytes > b.bytes; });
  return sorted;
}

void add_problem(Report& report, const Status& status) {
  if (status.ok()) return;
  // The file's name is the report's title.
  const std::string prefix = report.file->name() + ": ";
  std::string text = status.message();
  if (text.starts_with(prefix)) text.erase(0, prefix.size());
  report.problems.push_back(std::move(text));
}

void examine_model(Report& report) {
  const GgufFile& file = *report.file;
  for (const TypeShare& share : report.types) {
    if (!share.readable) {
      report.problems.push_back(
          fmt::format("type {} is not supported yet ({} tensors)", share.name, share.tensors));
    }
  }
  auto config = model_config_from_gguf(file);
  if (!config.ok()) return add_problem(report, config.status());
  report.config = std::move(config).value();
  auto architecture = find_architecture(report.config->architecture);
  if (!architecture.ok()) return add_problem(report, architecture.status());
  if (report.problems.empty())
    add_problem(report, check_tensors(file, **architecture, *report.config));
}

void examine_text(Report& report) {
  const GgufFile& file = *report.file;
  if (const auto text = file.optional_string("tokenizer.chat_template"); text.ok() && *text) {
    report.chat_template = **text;
    add_problem(report, ChatTemplate::compile(report.chat_template).status());
  }
  if (file.find("tokenizer.ggml.model") == nullptr) return;
  auto vocab = vocab_from_gguf(file, report.file);
  if (!vocab.ok()) return add_problem(report, vocab.status());
  report.vocab = std::move(vocab).value();
  add_problem(report, Tokenizer::create(*report.vocab).status());
}

Report examine(std::shared_ptr<const GgufFile> file, const InspectOptions& options) {
  Report report;
  report.file = std::move(file);
  const auto architecture = report.file->optional_string("general.architecture");
  const auto name = report.file->optional_string("general.name");
  if (architecture.ok()) report.architecture = printable(architecture->value_or(""));
  if (name.ok()) report.name = printable(name->value_or(""));
  for (const GgufTensor& tensor : report.file->plan().tensors) {
    report.parameters += tensor.elements;
    report.tensor_bytes += static_cast<int64_t>(tensor.bytes.size());
  }
  report.types = type_shares(*report.file);
  examine_model(report);
  examine_text(report);
  if (report.config)
    report.context = options.context > 0 ? options.context : report.config->context_length;
  return report;
}

// ---- text -------------------------------------------------------------------------------------

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
  for (auto i = static_cast<int64_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<size_t>(i), ",");
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
  std::string text =
      fmt::format("{} ({}), {} tokens, {} merges", printable(vocab.model), printable(vocab.pre),
                  grouped(static_cast<int64_t>(vocab.tokens.size())),
                  grouped(static_cast<int64_t>(vocab.merges.size())));
  text += special_text(vocab, "bos", vocab.bos) + special_text(vocab, "eos", vocab.eos) +
          special_text(vocab, "unk", vocab.unk) + special_text(vocab, "pad", vocab.pad);
  text += vocab.add_bos ? ", adds bos" : "";
  text += ", ends at";
  for (const TokenId id : vocab.end_ids) text += fmt::format(" {}", id);
  return text;
}

void add_model_lines(std::string& text, const ModelConfig& config) {
  add_line(text, "layers",
           fmt::format("{}, hidden {}, feed-forward {}", config.layers, config.hidden, config.ffn));
  add_line(
      text, "attention",
      fmt::format("{} query heads, {} key/value heads of {}; RoPE base {}, {} of {} dimensions",
                  config.heads, config.kv_heads, config.head_dim, config.rope_theta,
                  config.rope_dim, config.head_dim));
  add_line(text, "embedding",
           fmt::format("{} rows, {} output matrix", grouped(config.vocab),
                       config.tied_embeddings ? "also the" : "separate"));
  add_line(text, "context", fmt::format("{} tokens", config.context_length));
}

std::string text_report(const Report& report, const InspectOptions& options) {
  const GgufPlan& plan = report.file->plan();
  std::string text = fmt::format("{}\n", report.file->name());
  add_line(text, "format",
           fmt::format("GGUF version {}, {}, {} keys, alignment {}", plan.version,
                       size_text(static_cast<int64_t>(report.file->file_bytes())),
                       plan.entries.size(), plan.alignment));
  if (!report.name.empty()) add_line(text, "name", report.name);
  add_line(text, "architecture", report.architecture.empty() ? "not given" : report.architecture);
  if (report.config) add_model_lines(text, *report.config);
  add_line(text, "parameters", grouped(report.parameters));
  add_line(text, "tokenizer", report.vocab ? vocab_text(*report.vocab) : "none that can be read");
  add_line(text, "chat template",
           report.chat_template.empty()
               ? "none"
               : fmt::format("yes, {} bytes", report.chat_template.size()));
  add_line(text, "tensors",
           fmt::format("{}, {}", plan.tensors.size(), size_text(report.tensor_bytes)));
  for (const TypeShare& share : report.types) {
    add_line(text, "",
             fmt::format("{:<8}{:>6} {:>12}{}", share.name, share.tensors, size_text(share.bytes),
                         share.readable ? "" : "  not supported yet"));
  }
  if (report.config) {
    add_line(text, "memory",
             fmt::format("weights {}; KV cache in f16: {} a token, {} for a context of {}",
                         size_text(report.tensor_bytes), size_text(report.kv_token_bytes()),
                         size_text(report.kv_token_bytes() * report.context), report.context));
  }
  add_line(text, "runs here", report.problems.empty() ? "yes" : "no");
  for (const std::string& problem : report.problems) add_line(text, "", problem);
  if (options.tensors) {
    text += "\n";
    for (const GgufTensor& tensor : plan.tensors) {
      text += fmt::format("  {:<32} {:<8} {:<18} {:>12}\n", printable(tensor.name),
                          tensor.type->name, tensor.shape.to_string(),
                          size_text(static_cast<int64_t>(tensor.bytes.size())));
    }
  }
  return text;
}

// ---- JSON -------------------------------------------------------------------------------------

Json config_json(const ModelConfig& config) {
  Json json = Json::object();
  json.set("layers", config.layers)
      .set("hidden", config.hidden)
      .set("feed_forward", config.ffn)
      .set("heads", config.heads)
      .set("kv_heads", config.kv_heads)
      .set("head_dim", config.head_dim)
      .set("vocab", config.vocab)
      .set("context_length", config.context_length)
      .set("rms_eps", static_cast<double>(config.rms_eps))
      .set("rope_theta", config.rope_theta)
      .set("rope_dim", config.rope_dim)
      .set("tied_embeddings", config.tied_embeddings);
  return json;
}

Json id_json(TokenId id) { return id < 0 ? Json() : Json(id); }

Json vocab_json(const Vocab& vocab) {
  Json end_ids = Json::array();
  for (const TokenId id : vocab.end_ids) end_ids.push(id);
  Json json = Json::object();
  json.set("model", vocab.model)
      .set("pre", vocab.pre)
      .set("tokens", vocab.tokens.size())
      .set("merges", vocab.merges.size())
      .set("bos", id_json(vocab.bos))
      .set("eos", id_json(vocab.eos))
      .set("unk", id_json(vocab.unk))
      .set("pad", id_json(vocab.pad))
      .set("add_bos", vocab.add_bos)
      .set("end_ids", std::move(end_ids));
  return json;
}

Json shape_json(const Shape& shape) {
  Json json = Json::array();
  for (int i = 0; i < shape.rank(); ++i) json.push(shape[i]);
  return json;
}

std::string json_report(const Report& report, const InspectOptions& options) {
  const GgufPlan& plan = report.file->plan();
  Json types = Json::array();
  for (const TypeShare& share : report.types) {
    Json type = Json::object();
    type.set("type", share.name).set("tensors", share.tensors).set("bytes", share.bytes);
    types.push(std::move(type.set("supported", share.readable)));
  }
  Json problems = Json::array();
  for (const std::string& problem : report.problems) problems.push(problem);
  Json json = Json::object();
  json.set("file", report.file->name())
      .set("file_bytes", report.file->file_bytes())
      .set("gguf_version", static_cast<int64_t>(plan.version))
      .set("alignment", static_cast<int64_t>(plan.alignment))
      .set("name", report.name)
      .set("architecture", report.architecture)
      .set("config", report.config ? config_json(*report.config) : Json())
      .set("parameters", report.parameters)
      .set("tokenizer", report.vocab ? vocab_json(*report.vocab) : Json())
      .set("chat_template", !report.chat_template.empty())
      .set("tensor_count", plan.tensors.size())
      .set("tensor_bytes", report.tensor_bytes)
      .set("types", std::move(types))
      .set("kv_bytes_per_token", report.kv_token_bytes())
      .set("context", report.context)
      .set("kv_bytes", report.kv_token_bytes() * report.context)
      .set("supported", report.problems.empty())
      .set("problems", std::move(problems));
  if (options.tensors) {
    Json tensors = Json::array();
    for (const GgufTensor& tensor : plan.tensors) {
      Json row = Json::object();
      row.set("name", tensor.name)
          .set("type", tensor.type->name)
          .set("shape", shape_json(tensor.shape));
      tensors.push(std::move(row.set("bytes", tensor.bytes.size())));
    }
    json.set("tensors", std::move(tensors));
  }
  return write_json(json) + "\n";
}

}  // namespace

Result<std::string> inspect_file(const std::string& path, const InspectOptions& options) {
  HR_ASSIGN_OR_RETURN(auto file, GgufFile::open(path));
  const Report report = examine(std::move(file), options);
  return options.json ? json_report(report, options) : text_report(report, options);
}

}  // namespace headrace
