#include "server/event_frame.h"

#include "base/check.h"
#include "base/json.h"

namespace headrace {

// Inside a JSON string a quote has a backslash before it, so that what is found is no other text.
EventFrame::EventFrame(std::string_view event, std::string_view key) {
  std::string member;
  append_json_string(member, key);
  member += ':';
  const size_t at = event.rfind(member + "\"\"");
  CHECK(at != event.npos);
  const size_t text = at + member.size();
  before_ = event.substr(0, text);
  behind_ = event.substr(text + 2);
}

void EventFrame::append(std::string& out, std::string_view text) const {
  out += before_;
  append_json_string(out, text);
  out += behind_;
}

}  // namespace headrace
