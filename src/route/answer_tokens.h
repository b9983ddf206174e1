// How much an answer has cost its client, as far as its bytes tell: for quotas that hold over all
// workers.
#pragma once

#include <cstdint>
#include <string_view>

#include "route/request_facts.h"

namespace headrace {

// Whole events of a stream, without its comments: about a token each.
int64_t events_in(std::string_view bytes, StreamFraming framing);

// Of an answer in one piece: what its usage says, in the form of any protocol; else by its length.
int64_t generated_tokens(std::string_view body);

}  // namespace headrace
