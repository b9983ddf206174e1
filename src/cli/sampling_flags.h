// The flags that say how tokens are chosen, shared by run and chat.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/sampling_defaults.h"
#include "base/sampling_params.h"
#include "cli/command_line.h"

namespace headrace {

struct SamplingFlags {
  SamplingParams sampling;         // max_tokens < 0: as much as the context holds
  SamplingDefaults chosen = {};    // what the command line names
  std::vector<std::string> stops;  // texts that end the answer and are left out of it
};

// What neither the command line nor the model says is as `flags` holds it.
void add_sampling_flags(CLI::App& app, SamplingFlags& flags);

// Of those the flags that a model has suggestions for; `otherwise` is what the help tells.
void add_chosen_sampling_flags(CLI::App& app, SamplingDefaults& chosen,
                               const SamplingParams& otherwise);

// The command line's before the model's before the command's own.
SamplingParams resolve_sampling(const SamplingFlags& flags, const SamplingDefaults& of_model);

}  // namespace headrace
