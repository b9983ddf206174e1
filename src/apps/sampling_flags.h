// The flags that say how tokens are chosen, shared by run and chat.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "base/sampling_params.h"

namespace headrace {

struct SamplingFlags {
  SamplingParams sampling;         // max_tokens < 0: as much as the context holds
  std::vector<std::string> stops;  // texts that end the answer and are left out of it
};

// Defaults are what `flags` holds.
void add_sampling_flags(CLI::App& app, SamplingFlags& flags);

}  // namespace headrace
