// The flags that say which model is loaded and how, shared by run, chat, serve, bench and eval.
// Names are vLLM's; the spellings of llama.cpp and SGLang are accepted beside them.
#pragma once

#include <string>
#include <vector>

#include "base/log_format.h"
#include "cli/command_line.h"
#include "stack/model_stack.h"

namespace headrace {

struct ModelFlags {
  StackOptions stack;
  std::vector<std::string> models;  // of ModelArgument::kSeveral
  std::string device = "auto";      // read into stack.device by apply_model_flags()
  LogLevel log_level = LogLevel::kWarning;
  LogFormat log_format = LogFormat::kText;
  std::string revision;          // of a model of the Hugging Face cache
  std::string hf_repo, hf_file;  // llama.cpp's -hf USER/MODEL[:QUANT] and -hff FILE
  bool needs_model = true;       // where none is named the default one is taken
};

// kSeveral: repeatable, into `models`; the caller says which of them is stack.model.
enum class ModelArgument { kFlag, kFlagOrPositional, kSeveral };

// Adds -m/--model, --threads and all of add_compute_flags(). Defaults are what `flags` holds.
void add_model_flags(CLI::App& app, ModelFlags& flags,
                     ModelArgument argument = ModelArgument::kFlag);
// Adds --load-format, --dtype, --device, --log-level, --log-format, and the flags of other
// programs.
void add_compute_flags(CLI::App& app, ModelFlags& flags);
// Adds --generation-config and --override-generation-config.
void add_generation_config_flags(CLI::App& app, ModelFlags& flags);
// Adds --chat-template.
void add_template_flag(CLI::App& app, ModelFlags& flags);
// Sets the form and level of the log, and fills in the default model where none was named (see
// default_model.h).
Status apply_model_flags(ModelFlags& flags);

}  // namespace headrace
