// What an answer's text turns out to be: words for the user, thoughts, calls of tools.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

struct OutputEvent {
  enum class Kind : uint8_t {
    kContent,
    kReasoning,
    kCallBegin,  // `text` is the function's name
    kArguments,  // a fragment of the call's JSON
    kCallEnd,
  };
  Kind kind = Kind::kContent;
  std::string text;
  int32_t call = -1;    // number of the call in the answer, from 0
  std::string call_id;  // of kCallBegin: what the model itself calls it; mostly empty

  friend bool operator==(const OutputEvent&, const OutputEvent&) = default;
};

// Neighbours that say the same kind of thing are one event.
using OutputEvents = std::vector<OutputEvent>;
void append_event(OutputEvents& events, OutputEvent event);
void append_text(OutputEvents& events, OutputEvent::Kind kind, int32_t call, std::string_view text);

}  // namespace headrace
