#include "cli/adapter_flags.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/command_line.h"
#include "stack/model_source.h"

namespace headrace {
namespace {

constexpr const char* kAdapterGroup = "Adapters";

// The name of its file or folder.
AdapterSpec spec_of_path(const std::string& path) {
  return {.name = model_name(path), .path = path};
}

void take_adapter_of_all(AdapterOptions& options, AdapterSpec spec, const char* flag) {
  if (options.of_all) {
    throw CLI::ValidationError(flag, "one adapter at a time: " + options.of_all->path +
                                         " is named already (a server takes several by "
                                         "--lora-modules)");
  }
  options.of_all = std::move(spec);
}

// llama.cpp's "FILE:SCALE".
AdapterSpec read_scaled(const std::string& text) {
  const size_t colon = text.rfind(':');
  double scale = 0;
  const char* const end = text.data() + text.size();
  const char* const number = text.data() + (colon == text.npos ? text.size() : colon + 1);
  const auto [read, error] = std::from_chars(number, end, scale);
  if (colon == text.npos || colon == 0 || error != std::errc() || read != end ||
      !(std::abs(scale) <= 1e6)) {
    throw CLI::ValidationError("--lora-scaled", text + ": expected FILE:SCALE, as a.gguf:0.5");
  }
  AdapterSpec spec = spec_of_path(text.substr(0, colon));
  spec.scale = scale;
  return spec;
}

Result<AdapterSpec> read_adapter_json(const std::string& text) {
  HR_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  AdapterSpec spec;
  for (const auto& [key, value] : json.is_object() ? json.as_object() : Json::Object()) {
    const bool known = key == "name" || key == "path" || key == "base_model_name";
    if (!known) {
      return invalid_argument(
          fmt::format("{} is not a field: there are name, path and base_model_name", key));
    }
    if (!value.is_string()) return invalid_argument(fmt::format("{} must be a text", key));
    if (key == "name") spec.name = value.as_string();
    if (key == "path") spec.path = value.as_string();
  }
  return spec;
}

}  // namespace

Result<AdapterSpec> read_adapter_spec(const std::string& text) {
  AdapterSpec spec;
  if (text.starts_with('{')) {
    HR_ASSIGN_OR_RETURN(spec, read_adapter_json(text));
  } else {
    const size_t equals = text.find('=');
    if (equals != text.npos) spec = {text.substr(0, equals), text.substr(equals + 1)};
  }
  if (spec.name.empty() || spec.path.empty()) {
    return invalid_argument(fmt::format(
        "{}: expected NAME=PATH, or {{\"name\": \"sql\", \"path\": \"adapters/sql\"}}", text));
  }
  return spec;
}

void add_adapter_flag(CLI::App& app, AdapterOptions& options) {
  app.add_option_function<std::string>(
         "--lora",
         [&options](const std::string& path) {
           if (path.empty()) throw CLI::ValidationError("--lora", "must name a folder or a file");
           take_adapter_of_all(options, spec_of_path(path), "--lora");
         },
         "An adapter over the model's weights: a PEFT folder with adapter_model.safetensors, or "
         "a .gguf file")
      ->type_name("PATH")
      ->group(kAdapterGroup);
  app.add_option_function<std::string>(
         "--lora-scaled",
         [&options](const std::string& text) {
           take_adapter_of_all(options, read_scaled(text), "--lora-scaled");
         },
         "The same, and what it adds times SCALE")
      ->type_name("PATH:SCALE")
      ->group(kAdapterGroup);
  add_choice(
      app, "--lora-dtype", options.dtype, kLoraTypes,
      "What adapters are kept as on a CPU; auto: float32 with --dtype float32, else float16. "
      "On a GPU as the model computes")
      ->group(kAdapterGroup);
  app.add_option("--max-lora-rank", options.rank_max, "Largest rank of an adapter")
      ->check(CLI::Range(1, 1 << 12))
      ->type_name("N")
      ->group(kAdapterGroup);
}

void add_adapter_flags(CLI::App& app, AdapterOptions& options) {
  add_adapter_flag(app, options);
  app.add_flag("--enable-lora,!--no-enable-lora", options.enabled,
               "Adapters may be loaded while the server runs: /v1/load_lora_adapter")
      ->group(kAdapterGroup);
  app.add_option_function<std::vector<std::string>>(
         "--lora-modules,--lora-paths",
         [&options](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             auto spec = read_adapter_spec(text);
             if (!spec.ok()) throw CLI::ValidationError("--lora-modules", spec.status().message());
             options.at_start.push_back(*std::move(spec));
           }
         },
         "Adapters that requests name as their model: NAME=PATH, or {\"name\": ..., \"path\": "
         "...}")
      ->type_name("NAME=PATH...")
      ->group(kAdapterGroup);
  app.add_option("--max-cpu-loras,--max-loras,--max-loras-per-batch", options.count_max,
                 "Adapters in memory at a time, all of which may be in one step")
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("N")
      ->group(kAdapterGroup);
}

}  // namespace headrace
