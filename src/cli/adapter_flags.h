// The flags of adapters: vLLM's --enable-lora, --lora-modules, --max-loras, --max-lora-rank,
// --max-cpu-loras and --lora-dtype; llama.cpp's --lora and --lora-scaled.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/status.h"
#include "stack/adapter_loading.h"

namespace headrace {

// --lora, --lora-scaled, --lora-dtype and --max-lora-rank, of commands that answer with one adapter
// or none. Before add_model_flags(), which adds what is not there as flags of other programs.
void add_adapter_flag(CLI::App& app, AdapterOptions& options);
// The same and those of a server, whose requests choose.
void add_adapter_flags(CLI::App& app, AdapterOptions& options);

// "NAME=PATH", or {"name": ..., "path": ...}; kInvalidArgument.
Result<AdapterSpec> read_adapter_spec(const std::string& text);

}  // namespace headrace
