// Which files of a repository a model is made of: safetensors with all that belongs to them, or one
// GGUF file (in its parts).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/hub_api.h"

namespace headrace {

// `quant`: a word of a .gguf file's name, as "Q8_0", in any case; empty: safetensors where there
// are some, else the GGUF file that is first in the order of docs/models.md and fits in
// `memory_bytes` with a quarter to spare. Errors name what there is.
Result<std::vector<HubFile>> choose_files(const HubModel& model, const std::string& repo,
                                          const std::string& quant, int64_t memory_bytes);

// "Q4_K_M" of "model.q4_k_m.gguf"; empty: none that is known.
std::string quant_of_name(const std::string& file);

// "1.2 GB"
std::string bytes_text(int64_t bytes);

}  // namespace headrace
