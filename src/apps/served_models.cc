#include "apps/served_models.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/command_line.h"
#include "cli/load_progress.h"
#include "stack/hub_cache.h"
#include "stack/model_device.h"
#include "stack/model_names.h"
#include "stack/model_source.h"
#include "tensor/free_memory.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr double kFreeMemoryShare = 0.9;

ModelFacts facts_of(const ModelStack& stack) {
  const StackInfo& info = stack.info();
  const int64_t memory = info.weight_bytes + info.kv_bytes + info.state_bytes;
  return {.path = info.model_path,
          .architecture = stack.config().architecture,
          .weight_types = info.weight_types,
          .parameter_count = info.parameter_count,
          .file_bytes = info.file_bytes,
          .memory_bytes = memory,
          .gpu_bytes = info.on_gpu ? memory : 0,
          .context_length = stack.config().context_length,
          .hidden = stack.config().hidden,
          .layers = stack.config().layers};
}

ServedModel served_embedder(EmbeddingStack& embedder) {
  const StackInfo& info = embedder.info();
  const EmbeddingModelFacts& facts = embedder.facts();
  return {.embedder = &embedder.engine(),
          .tokenizer = embedder.tokenizer(),
          .chat_template = embedder.pair_template(),
          .joins_pairs = embedder.joins_pairs(),
          .max_model_len = info.max_model_len,
          .created_unix_s = std::time(nullptr),
          .facts = {.path = info.model_path,
                    .architecture = facts.architecture,
                    .weight_types = info.weight_types,
                    .parameter_count = info.parameter_count,
                    .file_bytes = info.file_bytes,
                    .memory_bytes = info.weight_bytes,
                    .context_length = facts.context_length,
                    .hidden = facts.hidden,
                    .layers = facts.layers}};
}

// "model-00002-of-00003.gguf" is a part of the model whose first part stands beside it.
bool is_later_part(const std::string& stem) {
  const auto part = split_name(stem);
  return part && part->number != "00001";
}

// A vision tower's file is no model.
bool is_gguf_model(const fs::path& file) {
  return file.extension() == ".gguf" && !is_later_part(file.stem().string()) &&
         !file.filename().string().starts_with("mmproj");
}

// The model that an entry of a folder is, if any: a .gguf file, a Hugging Face folder, or a folder
// with one .gguf model.
std::optional<std::string> model_at(const fs::path& entry) {
  std::error_code ignored;
  if (fs::is_regular_file(entry, ignored)) {
    return is_gguf_model(entry) ? std::optional(entry.string()) : std::nullopt;
  }
  if (!fs::is_directory(entry, ignored)) return std::nullopt;
  if (fs::exists(entry / "config.json", ignored)) return entry.string();
  std::optional<std::string> found;
  for (const auto& inside : fs::directory_iterator(entry, ignored)) {
    if (!is_gguf_model(inside.path())) continue;
    if (found) return std::nullopt;
    found = inside.path().string();
  }
  return found;
}

Status add_models_of(const std::string& dir, EmptyFolder empty, std::vector<NamedModel>& models) {
  std::error_code error;
  const auto entries = fs::directory_iterator(dir, error);
  if (error) return not_found(fmt::format("--models-dir {}: {}", dir, error.message()));
  const auto first = static_cast<std::ptrdiff_t>(models.size());
  for (const auto& entry : entries) {
    const auto path = model_at(entry.path());
    if (path) models.push_back({model_name(entry.path().string()), *path});
  }
  if (empty == EmptyFolder::kIsAnError && static_cast<size_t>(first) == models.size()) {
    return not_found(fmt::format(
        "--models-dir {}: there is no model in it (.gguf files, or folders as of Hugging Face)",
        dir));
  }
  std::sort(models.begin() + first, models.end(),
            [](const NamedModel& a, const NamedModel& b) { return a.name < b.name; });
  return ok_status();
}

Result<NamedModel> named_model(const std::string& text) {
  std::error_code ignored;
  const size_t equals = text.find('=');
  const bool named =
      equals != text.npos && equals > 0 && text.find('/') > equals && !fs::exists(text, ignored);
  const std::string given = named ? text.substr(equals + 1) : text;
  HR_ASSIGN_OR_RETURN(const std::string path, local_model(given));
  return NamedModel{named ? text.substr(0, equals) : model_name(path), path};
}

// "model-00001-of-00003" -> "model-"; of a file that is no part its whole stem.
std::string stem_before_part(const std::string& stem) {
  const auto part = split_name(stem);
  return part ? part->whole + "-" : stem;
}

// Of the files that hold weights: of a split .gguf file all parts, of a name its snapshot's.
int64_t bytes_on_disk(const std::string& path) {
  std::error_code error;
  const auto size_of = [&error](const fs::path& file) {
    const auto bytes = fs::file_size(file, error);
    return error ? 0 : static_cast<int64_t>(bytes);
  };
  fs::path folder = path;
  std::string begin;  // of the parts' names; empty: all count
  if (fs::is_regular_file(path, error)) {
    begin = stem_before_part(folder.stem().string());
    if (begin == folder.stem().string()) return size_of(path);
    folder = fs::absolute(folder).parent_path();
  } else if (is_hub_name(path) && !fs::exists(path, error)) {
    const Result<std::string> snapshot = hub_snapshot(path);
    if (!snapshot.ok()) return 0;
    folder = *snapshot;
  }
  int64_t bytes = 0;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const fs::path extension = at->path().extension();
    const bool weights = extension == ".safetensors" || extension == ".gguf";
    const bool counts = begin.empty() || stem_before_part(at->path().stem().string()) == begin;
    if (weights && counts) bytes += size_of(at->path());
  }
  return bytes;
}

Result<ModelInstance> load_instance(const ServedModelOptions& options) {
  HR_ASSIGN_OR_RETURN(LoadedStack loaded, load_served_stack(options, LoadReport::kNone));
  auto stack = std::make_shared<LoadedStack>(std::move(loaded));
  ServedModel served = served_model_of(*stack, options);
  return ModelInstance{std::move(served), std::move(stack)};
}

}  // namespace

namespace {

// "--max-model-len" and "2048", as the value is written.
Status add_argument(const std::string& key, const Json& value,
                    std::vector<std::string>& arguments) {
  const auto text_of = [](const Json& json) {
    return json.is_string() ? json.as_string() : write_json(json);
  };
  if (key == "config" || key == "model" || key == "m" || value.is_null()) {
    return invalid_argument(fmt::format("{} is no setting of one model", key));
  }
  if (!value.is_array()) {
    arguments.push_back(fmt::format("--{}={}", key, text_of(value)));
    return ok_status();
  }
  for (const Json& each : value.as_array()) {
    arguments.push_back(fmt::format("--{}={}", key, text_of(each)));
  }
  return ok_status();
}

Status read_setting(const std::string& key, const Json& value, ModelSettings& model) {
  if (key == "path") {
    if (!value.is_string()) return invalid_argument("path must be a text");
    model.path = value.as_string();
    return ok_status();
  }
  if (key == "alias" || key == "aliases") {
    const Json::Array names = value.is_array() ? value.as_array() : Json::Array{value};
    for (const Json& name : names) {
      if (!name.is_string()) return invalid_argument("aliases must be texts");
      model.aliases.push_back(name.as_string());
    }
    return ok_status();
  }
  if (key == "model-idle-timeout" || key == "model_idle_timeout") {
    if (!value.is_number()) return invalid_argument("model-idle-timeout must be a number");
    model.idle_seconds = value.as_double();
    return ok_status();
  }
  return add_argument(key, value, model.arguments);
}

}  // namespace

Result<std::vector<ModelSettings>> read_model_settings(const std::string& json) {
  std::vector<ModelSettings> all;
  if (json.empty()) return all;
  const Result<Json> read = parse_json(json);
  if (!read.ok()) return read.status().with_context("--models");
  if (!read->is_object()) {
    return invalid_argument("--models: must be names of models with their settings", "models");
  }
  for (const auto& [name, settings] : read->as_object()) {
    ModelSettings& model = all.emplace_back();
    model.name = name;
    if (settings.is_string()) {
      model.path = settings.as_string();
      continue;
    }
    if (!settings.is_object()) {
      return invalid_argument(fmt::format("--models: {}: must be a path, or settings", name));
    }
    for (const auto& [key, value] : settings.as_object()) {
      const Status status = read_setting(key, value, model);
      if (!status.ok()) return status.with_context(fmt::format("--models: {}", name));
    }
  }
  return all;
}

Result<LoadedStack> load_served_stack(const ServedModelOptions& options, LoadReport report) {
  LoadedStack stack;
  HR_ASSIGN_OR_RETURN(auto source,
                      open_model_source(options.stack.model, options.stack.load.architecture_map));
  HR_ASSIGN_OR_RETURN(stack.embedder, EmbeddingStack::load(options.stack, source));
  if (stack.embedder && options.stack.adapters.wanted()) {
    return unsupported("--enable-lora: adapters are for models that generate text", "enable-lora");
  }
  if (stack.embedder) return stack;
  if (report == LoadReport::kProgressLine) {
    HR_ASSIGN_OR_RETURN(stack.model, load_with_progress(options.stack, std::move(source)));
  } else {
    HR_ASSIGN_OR_RETURN(stack.model, ModelStack::load(options.stack, nullptr, std::move(source)));
  }
  return stack;
}

ServedModel served_model_of(const LoadedStack& stack, const ServedModelOptions& options) {
  if (stack.embedder) return served_embedder(*stack.embedder);
  ModelStack& model = *stack.model;
  return {
      .engine = &model.engine(),
      .tokenizer = model.tokenizer(),
      .chat_template = model.chat_template(),
      .adapters = model.adapters(),
      .adapters_change = options.stack.adapters.enabled,
      .adapter_of_all = options.stack.adapters.of_all ? options.stack.adapters.of_all->name : "",
      .max_model_len = model.info().max_model_len,
      .tool_call_parser = options.tool_call_parser,
      .reasoning_parser = options.reasoning_parser,
      .ends_forms = options.ends_forms,
      .answer_tokens = options.answer_tokens,
      .template_defaults = options.template_defaults,
      .sampling = options.sampling.over(model.sampling()),
      .created_unix_s = std::time(nullptr),
      .facts = facts_of(model)};
}

void add_model_list_flags(CLI::App& app, ModelListFlags& flags) {
  constexpr const char* kGroup = "Several models";
  app.add_option("--models-dir", flags.dir,
                 "Serves each model in this folder, by the name of its file or folder; loaded by "
                 "the first request that names it")
      ->type_name("FOLDER")
      ->group(kGroup);
  app.add_flag("--allow-pull", flags.pulls,
               "Clients may fetch models by Ollama's /api/pull, of the Hugging Face hub and of "
               "Ollama's registry; they are kept where 'headrace pull' keeps them, with links in "
               "--models-dir, and served at once")
      ->group(kGroup);
  app.add_option(
         "--models", flags.settings,
         "Models with flags of their own, as {\"chat\": {\"path\": \"B.gguf\", "
         "\"aliases\": [\"b\"], \"max-model-len\": 4096}}; in --config a mapping. Without a "
         "path: of a model that is named elsewhere")
      ->type_name("JSON")
      ->group(kGroup);
  app.add_option("--models-max", flags.loaded_max,
                 "Models in memory at a time; the longest unused goes (0: as many as fit) "
                 "(default: 0)")
      ->transform(size_between(0, 1 << 20))
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--models-memory", flags.memory_bytes_max,
                 "Memory for their weights, keys and values (default: CPU: nine tenths of what is "
                 "free at the start)")
      ->transform(size_between(1, int64_t{1} << 50))
      ->type_name("BYTES")
      ->group(kGroup);
  app.add_option("--model-idle-timeout,--sleep-idle-seconds", flags.idle_seconds,
                 "A model without a request for so long goes to sleep, until the next wakes it; "
                 "also of one model (0: it stays) (default: 0)")
      ->check(number_between(-1.0, 1e9))
      ->type_name("SECONDS")
      ->group(kGroup);
  app.add_flag("--models-autoload,!--no-models-autoload", flags.loads_on_request,
               "Requests load the model that they name; else POST /models/load does")
      ->group(kGroup);
  app.add_flag("--enable-sleep-mode", flags.sleep_mode,
               "One model, too, can be unloaded: /sleep, /wake_up, /models/unload")
      ->group(kGroup);
}

Result<std::vector<NamedModel>> list_models(const std::vector<std::string>& named,
                                            const std::string& dir, EmptyFolder empty) {
  std::vector<NamedModel> models;
  for (const std::string& text : named) {
    HR_ASSIGN_OR_RETURN(NamedModel model, named_model(text));
    models.push_back(std::move(model));
  }
  if (!dir.empty()) HR_RETURN_IF_ERROR(add_models_of(dir, empty, models));
  return models;
}

ServedModelSpec model_spec(ServedModelOptions options, const NamedModel& model,
                           const std::vector<std::string>& names) {
  ServedModelSpec spec;
  spec.names = names;
  if (names.empty()) {
    spec.names = {model.name};
    if (model.path != model.name) spec.other_names = {model.path};
    if (is_hub_name(model.path)) {
      const HubName hub = hub_name_parts(model.path);
      spec.other_names.push_back(hub.maker + "/" + hub.model);
    }
  }
  for (const AdapterSpec& adapter : options.stack.adapters.at_start) {
    spec.adapter_names.push_back(adapter.name);
  }
  spec.facts.path = model.path;
  spec.facts.file_bytes = bytes_on_disk(model.path);
  options.stack.model = model.path;
  spec.load = [options = std::move(options)] { return load_instance(options); };
  return spec;
}

ModelPoolOptions pool_options(const ModelListFlags& flags, const StackOptions& stack) {
  ModelPoolOptions pool{.loaded_max = flags.loaded_max,
                        .memory_bytes_max = flags.memory_bytes_max,
                        .loads_on_request = flags.loads_on_request,
                        .follows_keep_alive = true};
  if (flags.idle_seconds > 0) pool.idle_seconds = flags.idle_seconds;
  if (pool.memory_bytes_max == 0 && !takes_gpu(stack.device)) {
    const auto free = static_cast<double>(free_memory_bytes().value_or(0));
    pool.memory_bytes_max = static_cast<int64_t>(free * kFreeMemoryShare);
  }
  return pool;
}

}  // namespace headrace
