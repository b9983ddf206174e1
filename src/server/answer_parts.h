// An answer in parts: stretches of words, of thoughts, and calls of tools, in the order in which
// the model wrote them. For protocols whose answers are lists of blocks or items.
#pragma once

#include <string>
#include <vector>

#include "text/output/output_event.h"

namespace headrace {

struct AnswerPart {
  enum class Kind : uint8_t { kText, kThought, kCall };
  Kind kind = Kind::kText;
  std::string text = {};     // of a call its arguments: JSON, as far as they came
  std::string name = {};     // of a call
  std::string call_id = {};  // what the model itself calls it; mostly empty
  int32_t call = -1;         // number of the call in the answer, from 0
  bool complete = false;     // not cut; of a call: its arguments are an object
};

// A step of an answer's becoming: a part begins, grows by `text`, ends. One part at a time.
struct PartStep {
  enum class Kind : uint8_t { kBegin, kText, kEnd };
  Kind kind = Kind::kBegin;
  size_t part = 0;
  std::string text = {};
};

class AnswerParts {
 public:
  // `hide_thoughts`: they are no parts.
  explicit AnswerParts(bool hide_thoughts) : hide_thoughts_(hide_thoughts) {}

  std::vector<PartStep> take(const OutputEvents& events);
  // The answer ends here. `cut`: by a length, in the midst of what it says.
  std::vector<PartStep> finish(bool cut);
  const std::vector<AnswerPart>& parts() const { return parts_; }

 private:
  void begin(AnswerPart part, std::vector<PartStep>& steps);
  void grow(AnswerPart::Kind kind, const std::string& text, std::vector<PartStep>& steps);
  void end(bool complete, std::vector<PartStep>& steps);

  const bool hide_thoughts_;
  bool open_ = false;  // the last part
  std::vector<AnswerPart> parts_;
};

}  // namespace headrace
