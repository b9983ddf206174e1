// --speculative-config: what vLLM's users write for speculative decoding, as JSON.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "sched/proposal_options.h"

namespace headrace {

// {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 8};
// fields that are left out keep the value that they have. kInvalidArgument names the field, or the
// method that there is not. `draft_model`: the path that "model" names.
Status read_speculative_config(std::string_view json, ProposalOptions& options,
                               std::string& draft_model);

}  // namespace headrace
