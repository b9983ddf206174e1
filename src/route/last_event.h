// Whether a stream has said all: what comes behind its last event is the end of the connection's
// framing, for which a client does not wait.
#pragma once

#include <string_view>

#include "route/request_facts.h"

namespace headrace {

// Whether whole events hold the last one of a stream of any protocol. `one_answer`: there is one
// choice (RequestFacts::one_answer): llama.cpp says "stop" of each.
bool has_last_event(std::string_view events, StreamFraming framing, bool one_answer);

}  // namespace headrace
