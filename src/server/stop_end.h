// Stop strings for an engine that searches: a beam whose text comes to one is a finished answer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/answer_end.h"
#include "text/tokenizer.h"

namespace headrace {

// `tokenizer` outlives the end and the requests that have it. `skip_special`: control tokens leave
// no text. Null where there is no stop string.
std::shared_ptr<const AnswerEnd> make_stop_end(const Tokenizer& tokenizer,
                                               std::vector<std::string> stops, bool skip_special);

}  // namespace headrace
