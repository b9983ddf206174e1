// The models of `headrace serve`: which there are, and how each is loaded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/json.h"
#include "base/sampling_defaults.h"
#include "base/status.h"
#include "server/model_pool.h"
#include "stack/embedding_stack.h"
#include "stack/model_stack.h"

namespace headrace {

// How a model is loaded and answers.
struct ServedModelOptions {
  StackOptions stack;
  SamplingDefaults sampling;  // of requests that do not say it themselves
  std::string tool_call_parser = "auto", reasoning_parser = "auto";
  bool ends_forms = true;      // within max_tokens
  int32_t answer_tokens = -1;  // of requests that name no length; below 0: what the context holds
  Json template_defaults = Json::object();  // of chats
};

// One of the two.
struct LoadedStack {
  std::unique_ptr<ModelStack> model;
  std::unique_ptr<EmbeddingStack> embedder;

  const StackInfo& info() const { return model ? model->info() : embedder->info(); }
};

enum class LoadReport : uint8_t { kNone, kProgressLine };

// Loads what `options` name. On the calling thread.
Result<LoadedStack> load_served_stack(const ServedModelOptions& options, LoadReport report);
// What a server is given of it, but for names; its pointers are the stack's.
ServedModel served_model_of(const LoadedStack& stack, const ServedModelOptions& options);

// What is said of one model, beside the flags of all.
struct ModelSettings {
  std::string name;
  std::string path;  // empty: it is a model of -m or --models-dir
  std::vector<std::string> aliases;
  double idle_seconds = 0;             // 0: as all
  std::vector<std::string> arguments;  // flags of its own, as on a command line
};
// Of --models, or that mapping of a configuration file. kInvalidArgument names the model.
Result<std::vector<ModelSettings>> read_model_settings(const std::string& json);

// Where a server has several models, or one that comes and goes.
struct ModelListFlags {
  std::string settings;     // of read_model_settings(); empty: none
  std::string dir;          // each model in it
  bool pulls = false;       // clients may fetch more into it
  double idle_seconds = 0;  // 0: models stay until there is no room
  bool sleep_mode = false;  // one model may sleep, too
  int32_t loaded_max = 0;
  int64_t memory_bytes_max = 0;  // 0: nine tenths of what is free at the start
  bool loads_on_request = true;

  bool comes_and_goes() const { return sleep_mode || idle_seconds > 0; }
};
void add_model_list_flags(CLI::App& app, ModelListFlags& flags);

struct NamedModel {
  std::string name, path;
};
// Those of the command line ("PATH", "NAME=PATH"), then those in the folder, by name. A part of a
// model that is split is no model. kNotFound, kInvalidArgument: the folder has none, unless it may.
enum class EmptyFolder : uint8_t { kIsAnError, kMayBe };
Result<std::vector<NamedModel>> list_models(const std::vector<std::string>& named,
                                            const std::string& dir,
                                            EmptyFolder empty = EmptyFolder::kIsAnError);

// `options` with the model's own path; the names are `names`, else the model's. Its path is a name,
// too, that is listed nowhere.
ServedModelSpec model_spec(ServedModelOptions options, const NamedModel& model,
                           const std::vector<std::string>& names);
ModelPoolOptions pool_options(const ModelListFlags& flags, const StackOptions& stack);

}  // namespace headrace
