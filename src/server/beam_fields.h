// Beam search (sched/beam_search.h) as requests of the OpenAI routes ask for it: vLLM's
// use_beam_search with length_penalty, and early_stopping as transformers has it. The beams are
// beam_width, or best_of, or n; the answers the n best.
#pragma once

#include <span>

#include "base/status.h"
#include "server/generation_request.h"
#include "server/request_fields.h"

namespace headrace {

std::span<const Field<GenerationSettings>> beam_fields();

// Behind all fields: whether those of a search go together and with the others. A search takes no
// share in the model's suggested penalty. kInvalidArgument names the field that does not.
Status settle_beams(const Json& body, GenerationSettings& settings);

}  // namespace headrace
