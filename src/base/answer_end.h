// Who reads an answer as it becomes and says where it ends: the seam between whoever knows its text
// (stop strings) and whoever chooses its tokens.
#pragma once

#include "base/ids.h"

namespace headrace {

// Of all answers of a request. Any thread.
class AnswerEnd {
 public:
  virtual ~AnswerEnd() = default;
  // Whether the answer, which had not ended before its last token, ends with it.
  virtual bool ends_with(TokenSpan answer) const = 0;
};

}  // namespace headrace
