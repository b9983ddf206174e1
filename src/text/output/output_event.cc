#include "text/output/output_event.h"

namespace headrace {

void append_event(OutputEvents& events, OutputEvent event) {
  const bool is_text =
      event.kind != OutputEvent::Kind::kCallBegin && event.kind != OutputEvent::Kind::kCallEnd;
  if (is_text && event.text.empty()) return;
  const bool goes_on = is_text && !events.empty() && events.back().kind == event.kind &&
                       events.back().call == event.call;
  if (goes_on) {
    events.back().text += event.text;
  } else {
    events.push_back(std::move(event));
  }
}

}  // namespace headrace
