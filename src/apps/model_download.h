// A model that is fetched at a prompt: under a line that shows how far it is, ended by Ctrl-C.
#pragma once

#include <string>

#include "cli/command_line.h"
#include "cli/model_flags.h"
#include "stack/model_names.h"

namespace headrace {

struct DownloadFlags {
  int connections = 8;
};

// Fetches what is missing of `name`, which is no path, and says on stderr what came. The file or
// folder where it lies. Makes the process's SignalWatch while it runs: Ctrl-C ends the process, its
// exit code is kInterruptedExitCode.
Result<std::string> download_model(const ModelName& name, const DownloadFlags& flags);

// The file or folder where it lies; empty: it is not here.
std::string place_of_model(const ModelName& name);

// Adds --pull.
void add_pull_flag(CLI::App& app, bool& pull);
// Before apply_model_flags(), and before any SignalWatch: models that the flags name and this
// machine has not are fetched if `pull` says so, or a person at a terminal does when asked; else
// nothing is done.
Status pull_missing_models(const ModelFlags& flags, bool pull);

}  // namespace headrace
