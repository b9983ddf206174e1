#include "text/output/output_event.h"

namespace headrace {

void append_event(OutputEvents& events, OutputEvent event) {
  const bool is_text =
      event.kind != OutputEvent::Kind::kCallBegin && event.kind != OutputEvent::Kind::kCallEnd;
  if (is_text) return append_text(events, event.kind, event.call, event.text);
  events.push_back(std::move(event));
}

void append_text(OutputEvents& events, OutputEvent::Kind kind, int32_t call,
                 std::string_view text) {
  if (text.empty()) return;
  if (!events.empty() && events.back().kind == kind && events.back().call == call) {
    events.back().text += text;
  } else {
    events.push_back({kind, std::string(text), call, {}});
  }
}

}  // namespace headrace
