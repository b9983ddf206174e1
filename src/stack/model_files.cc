#include "stack/model_files.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "base/mapped_file.h"
#include "stack/hf_folder.h"
#include "text/named_templates.h"
#include "weights/dummy_weights.h"
#include "weights/generation_config.h"

namespace headrace {
namespace {

constexpr size_t kTensorProblemsMax = 8;  // that are listed one by one

void add_problem(Problems& problems, Status status) {
  if (!status.ok()) problems.push_back(std::move(status));
}

// ---- weights ----------------------------------------------------------------------------------

// What makes queries and keys: with a scale, few keys have most of a row's attention.
bool is_query_or_key(std::string_view name) {
  return name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight") ||
         name.ends_with(".attn_q_norm.weight") || name.ends_with(".attn_k_norm.weight");
}

Result<std::shared_ptr<WeightSource>> dummy_weights(const Architecture& architecture,
                                                    const ModelConfig& config, float sharpness,
                                                    const DummyOptions& options) {
  std::vector<DummyTensor> tensors;
  for (const TensorSpec& spec : architecture.tensors(config)) {
    const float scale = is_query_or_key(spec.name) ? sharpness : 1.0f;
    tensors.push_back({spec.name, spec.shape, scale, spec.exact, spec.below});
  }
  HR_ASSIGN_OR_RETURN(auto source, DummyWeightSource::create(std::move(tensors), options));
  return std::shared_ptr<WeightSource>(std::move(source));
}

// Sizes, and the architecture that they belong to.
Status read_config(const ModelSource& source, ModelWeights& model) {
  HR_ASSIGN_OR_RETURN(model.config, source.config());
  HR_ASSIGN_OR_RETURN(model.architecture, find_architecture(model.config.architecture));
  return ok_status();
}

// llama.cpp's converter gives RWKV's first layer matrices of a gate that it has not.
bool is_rwkv_dummy(std::string_view name, const ModelConfig& config) {
  return config.mixers.rwkv.head_dim > 0 && name.starts_with("blk.0.time_mix_v") &&
         name != "blk.0.time_mix_value.weight";
}

// Keys and values of Gemma's layers that attend what others keep: files may have them, and no
// program reads them.
bool is_of_shared_keys(std::string_view name, const ModelConfig& config) {
  const int32_t sharing = config.mixers.gemma.sharing_layers;
  constexpr std::string_view kStem = "blk.";
  if (sharing == 0 || !name.starts_with(kStem)) return false;
  name.remove_prefix(kStem.size());
  int32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || layer < config.layers - sharing) return false;
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  return name == ".attn_k.weight" || name == ".attn_v.weight" || name == ".attn_k_norm.weight";
}

// The norm behind a mixture: A.X-K1's files have it of dense layers, too, where no program reads
// it.
bool is_norm_of_no_mixture(std::string_view name, const ModelConfig& config) {
  return config.architecture == "axk1" && name.ends_with(".post_ffw_norm.weight");
}

// Layers behind the model's that draft (MTP) are not read.
bool is_of_drafting_layer(std::string_view name, const ModelConfig& config) {
  for (const std::string_view stem : {"blk.", "model.layers."}) {
    if (!name.starts_with(stem)) continue;
    const std::string_view number = name.substr(stem.size());
    int32_t layer = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), layer);
    return error == std::errc() && end != number.data() + number.size() && *end == '.' &&
           layer >= config.layers && layer < config.layers + config.mixers.drafting_layers;
  }
  return false;
}

int64_t element_count(const WeightSource& weights, const ModelConfig& config) {
  int64_t count = 0;
  for (const std::string_view name : weights.names()) {
    if (is_of_drafting_layer(name, config)) continue;
    count += weights.info(name)->shape.elements().value_or(0);
  }
  return count;
}

void read_dummy_weights(const LoadOptions& options, int32_t threads, ModelWeights& model) {
  if (model.architecture == nullptr) return;
  DummyOptions dummy{.seed = options.dummy_seed, .threads = threads};
  if (options.dtype) dummy.dtype = *options.dtype;
  auto weights = dummy_weights(*model.architecture, model.config,
                               static_cast<float>(options.dummy_sharpness), dummy);
  if (!weights.ok()) return add_problem(model.problems, weights.status());
  model.weights = std::move(weights).value();
  model.weight_types = dtype_name(dummy.dtype);
  for (const TensorSpec& spec : model.architecture->tensors(model.config)) {
    model.parameter_count += spec.shape.elements().value_or(0);
  }
}

// By some of its rows: one that was trained differs in all.
bool is_copy_of_embedding(const WeightSource& weights) {
  constexpr int64_t kRows = 64;
  const auto one = weights.info("token_embd.weight"), other = weights.info("output.weight");
  if (!one || !other || one->dtype != other->dtype || one->shape != other->shape) return true;
  const auto embedding = weights.get("token_embd.weight"), output = weights.get("output.weight");
  if (!embedding.ok() || !output.ok() || output->shape.rank() != 2) return true;
  const int64_t rows = output->shape[0];
  const auto bytes = static_cast<size_t>(output->row(1) - output->row(0));
  bool equal = true;
  for (int64_t i = 0; equal && i < kRows; ++i) {
    const int64_t row = rows * i / kRows;
    equal = std::memcmp(embedding->row(row), output->row(row), bytes) == 0;
  }
  weights.release(*output);
  return equal;
}

// Without an architecture the tensors can still be listed.
void read_file_weights(const ModelSource& source, OutputMatrix matrix, ModelWeights& model) {
  const HfTensorNames names =
      model.architecture == nullptr ? HfTensorNames() : model.architecture->hf_names();
  auto weights = source.weights(names, /*tied=*/false);
  if (weights.ok() && model.config.tied_embeddings && (*weights)->info("output.weight")) {
    if (is_copy_of_embedding(**weights)) {
      weights = source.weights(names, /*tied=*/true);
    } else {
      log_warning(
          "{}: the output matrix differs from the embedding, and is used: the file's "
          "tie_word_embeddings says otherwise",
          source.path());
      model.config.tied_embeddings = false;
    }
  }
  if (!weights.ok()) return add_problem(model.problems, weights.status());
  model.weights = std::move(weights).value();
  model.content = model.weights->content_sample();
  model.weight_types = matrix_types(*model.weights);
  model.parameter_count = element_count(*model.weights, model.config);
  model.file_bytes = model.weights->file_bytes();
  if (model.architecture == nullptr) return;
  if (matrix == OutputMatrix::kNotNeeded && !model.weights->info("output.weight")) {
    model.config.tied_embeddings = true;
  }
  for (Status& problem : check_tensors(*model.weights, *model.architecture, model.config)) {
    model.problems.push_back(std::move(problem));
  }
}

// ---- tensors ----------------------------------------------------------------------------------

// Collects at most kTensorProblemsMax problems, and counts the rest.
class TensorProblems {
 public:
  explicit TensorProblems(const WeightSource& weights) : weights_(weights) {}

  void add(StatusCode code, std::string_view tensor, std::string_view what) {
    const std::string field = "tensor " + std::string(tensor);
    if (problems_.size() < kTensorProblemsMax) {
      problems_.emplace_back(code, fmt::format("{}: {}: {}", weights_.description(), field, what),
                             field);
    } else {
      ++left_out_;
    }
  }

  Problems take() && {
    if (left_out_ > 0) {
      problems_.push_back(corrupt(
          fmt::format("{}: {} more tensors do not fit", weights_.description(), left_out_)));
    }
    return std::move(problems_);
  }

 private:
  const WeightSource& weights_;
  Problems problems_;
  size_t left_out_ = 0;
};

// Tensors of each type that cannot be read, under the first of them.
class UnreadableTypes {
 public:
  void add(const WeightInfo& info) {
    auto [at, is_new] = first_.try_emplace(std::string(info.type), info.name_in_file, 0);
    if (!is_new) ++at->second.second;
  }
  void report(TensorProblems& problems) const {
    for (const auto& [type, first] : first_) {
      const std::string others =
          first.second == 0 ? "" : fmt::format(" (and {} more tensors of it)", first.second);
      problems.add(StatusCode::kUnsupported, first.first,
                   fmt::format("type {} is not supported yet{}", type, others));
    }
  }

 private:
  std::map<std::string, std::pair<std::string, size_t>> first_;
};

// ---- text -------------------------------------------------------------------------------------

// A template has a tag; the path of a file has none.
bool is_template(std::string_view text) {
  return text.find('{') != std::string_view::npos || text.find('\n') != std::string_view::npos;
}

Result<std::string> template_of(const ModelSource& source, const std::string& chosen) {
  if (chosen.empty()) return source.chat_template();
  if (is_template(chosen)) return chosen;
  if (const std::string_view named = named_template(chosen); !named.empty()) {
    return std::string(named);
  }
  std::error_code ignored;
  if (!std::filesystem::exists(chosen, ignored)) {
    return not_found(fmt::format(
        "--chat-template: {}: there is no such file, and of the templates with a name there are {}",
        chosen, fmt::join(template_names(), ", ")));
  }
  auto file = MappedFile::open(chosen);
  if (!file.ok()) return file.status().with_context("--chat-template");
  const auto bytes = (*file)->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Status read_tokenizer(const ModelSource& source, ModelText& text) {
  HR_ASSIGN_OR_RETURN(text.vocab, source.vocab());
  if (!text.vocab) return ok_status();
  auto tokenizer = Tokenizer::create(*text.vocab);
  if (!tokenizer.ok()) return tokenizer.status().with_context(source.path() + ": tokenizer");
  text.tokenizer = std::move(tokenizer).value();
  return ok_status();
}

Status read_template(const ModelSource& source, const std::string& chosen, ModelText& text) {
  HR_ASSIGN_OR_RETURN(text.template_source, template_of(source, chosen));
  if (text.template_source.empty()) return ok_status();
  auto compiled = ChatTemplate::compile(text.template_source);
  if (!compiled.ok()) {
    return compiled.status().with_context(chosen.empty() ? source.path() : "--chat-template");
  }
  text.chat_template = std::move(compiled).value();
  return ok_status();
}

// ---- sampling ---------------------------------------------------------------------------------

Result<SamplingDefaults> configured_sampling(const ModelSource& source, const std::string& choice) {
  if (choice == "vllm") return SamplingDefaults();
  auto sampling = choice == "auto" ? source.sampling() : sampling_of_folder(choice);
  if (sampling.ok()) return sampling;
  if (choice != "auto") return sampling.status().with_context("--generation-config");
  return Status(sampling.status().code(),
                sampling.status().message() + " (--generation-config vllm leaves it out)",
                sampling.status().field());
}

// Unlike in a file, a key that is not read was typed in vain.
Result<SamplingDefaults> parse_sampling_overrides(const std::string& text) {
  constexpr std::string_view kFlag = "--override-generation-config";
  const auto json = parse_json(text);
  if (!json.ok()) return json.status().with_context(kFlag);
  HR_ASSIGN_OR_RETURN(const SamplingDefaults given, sampling_defaults_from_json(*json, kFlag));
  const auto keys = generation_config_keys();
  for (const auto& [key, value] : json->as_object()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    return invalid_argument(
        fmt::format("{}: {} is not one of {}", kFlag, printable(key), fmt::join(keys, ", ")), key);
  }
  return given;
}

}  // namespace

Status refusal(const Problems& problems) {
  return problems.empty() ? ok_status() : problems.front();
}

Status check_load_format(const ModelSource& source, LoadFormat format) {
  if (format == LoadFormat::kAuto || format == LoadFormat::kDummy) return ok_status();
  const bool gguf = format == LoadFormat::kGguf;
  if (gguf == (source.kind() == SourceKind::kGguf)) return ok_status();
  return invalid_argument(fmt::format("--load-format {}: {} is a {}", name_of(kLoadFormats, format),
                                      source.path(), gguf ? "Hugging Face folder" : "GGUF file"),
                          "load_format");
}

ModelWeights read_weights(const ModelSource& source, const LoadOptions& options, int32_t threads,
                          OutputMatrix matrix) {
  ModelWeights model;
  add_problem(model.problems, read_config(source, model));
  if (options.format == LoadFormat::kDummy) {
    read_dummy_weights(options, threads, model);
  } else {
    read_file_weights(source, matrix, model);
  }
  return model;
}

ModelText read_tokenizer_alone(const ModelSource& source) {
  ModelText text;
  add_problem(text.problems, read_tokenizer(source, text));
  return text;
}

ModelText read_text(const ModelSource& source, const std::string& chat_template) {
  ModelText text = read_tokenizer_alone(source);
  add_problem(text.problems, read_template(source, chat_template, text));
  return text;
}

Result<SamplingDefaults> read_sampling_defaults(const ModelSource& source,
                                                const std::string& generation_config,
                                                const std::string& overrides) {
  HR_ASSIGN_OR_RETURN(SamplingDefaults defaults, configured_sampling(source, generation_config));
  if (overrides.empty()) return defaults;
  HR_ASSIGN_OR_RETURN(const SamplingDefaults given, parse_sampling_overrides(overrides));
  return given.over(defaults);
}

Problems make_agree(const ModelSource& source, const ModelWeights& weights, ModelText& text) {
  if (weights.architecture == nullptr || !text.vocab) return {};
  const size_t tokens = text.vocab->tokens.size();
  const auto rows = static_cast<size_t>(weights.config.vocab);
  if (tokens <= rows) return {};
  if (has_only_added_tokens_from(*text.vocab, rows)) {
    log_warning(
        "{}: the embedding has {} rows: the tokenizer's {} added tokens behind them are "
        "left out",
        source.path(), rows, tokens - rows);
    cut_vocab(*text.vocab, rows);
    auto tokenizer = Tokenizer::create(*text.vocab);
    if (!tokenizer.ok()) return {tokenizer.status().with_context(source.path() + ": tokenizer")};
    text.tokenizer = std::move(tokenizer).value();
    return {};
  }
  return {corrupt(fmt::format("{}: the tokenizer has {} tokens, the embedding {} rows",
                              source.path(), tokens, weights.config.vocab))};
}

Problems check_tensors(const WeightSource& weights, const Architecture& architecture,
                       const ModelConfig& config) {
  const std::vector<TensorSpec> specs = architecture.tensors(config);
  UnreadableTypes unreadable;
  for (const TensorSpec& spec : specs) {
    const auto info = weights.info(spec.name);
    if (info && !info->dtype) unreadable.add(*info);
  }
  TensorProblems problems(weights);
  unreadable.report(problems);
  for (const TensorSpec& spec : specs) {
    const auto info = weights.info(spec.name);
    if (!info) {
      if (spec.optional) continue;
      problems.add(StatusCode::kCorrupt, weights.name_in_file(spec.name), "missing");
    } else if (!is_of_shape(info->shape, spec.shape)) {
      problems.add(StatusCode::kCorrupt, info->name_in_file,
                   fmt::format("shape {}, the model's sizes ask for {}", info->shape.to_string(),
                               spec.shape.to_string()));
    }
  }
  std::vector<std::string_view> known;
  for (const TensorSpec& spec : specs) known.push_back(spec.name);
  std::sort(known.begin(), known.end());
  for (const std::string_view name : weights.names()) {
    if (std::binary_search(known.begin(), known.end(), name)) continue;
    if (is_of_drafting_layer(name, config) || weights.adds_nothing(name)) continue;
    if (is_rwkv_dummy(name, config) || is_of_shared_keys(name, config)) continue;
    if (is_norm_of_no_mixture(name, config)) continue;
    problems.add(StatusCode::kUnsupported, weights.info(name)->name_in_file,
                 fmt::format("architecture {} does not use it here, and leaving it out would "
                             "change the model's answers",
                             architecture.name));
  }
  return std::move(problems).take();
}

std::string matrix_types(const WeightSource& weights) {
  std::map<std::string_view, int64_t> bytes;
  for (const std::string_view name : weights.names()) {
    const auto info = weights.info(name);
    if (info->shape.rank() >= 2) bytes[info->type] += info->bytes;
  }
  std::vector<std::pair<int64_t, std::string_view>> order;
  for (const auto& [name, size] : bytes) order.emplace_back(size, name);
  std::sort(order.rbegin(), order.rend());
  std::string types;
  for (const auto& [size, name] : order) types += (types.empty() ? "" : " + ") + std::string(name);
  return types;
}

}  // namespace headrace
