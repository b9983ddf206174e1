#include "route/last_event.h"

#include <algorithm>

#include "route/json_members.h"

namespace headrace {
namespace {

constexpr std::string_view kLastNames[] = {"message_stop", "response.completed",
                                           "response.incomplete", "response.failed"};

std::string_view behind(std::string_view line, std::string_view name) {
  if (!line.starts_with(name)) return {};
  line.remove_prefix(name.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return line;
}

bool is_last_line(std::string_view line, StreamFraming framing, bool one_answer) {
  if (framing == StreamFraming::kLines) return json_member(line, "done") == "true";
  const std::string_view name = behind(line, "event:");
  for (const std::string_view last : kLastNames) {
    if (name == last) return true;
  }
  const std::string_view data = behind(line, "data:");
  if (data == "[DONE]") return true;
  if (one_answer && json_member(data, "stop") == "true") return true;  // llama.cpp
  return json_member(data, "generated_text").starts_with('"');         // TGI
}

}  // namespace

bool has_last_event(std::string_view events, StreamFraming framing, bool one_answer) {
  while (!events.empty()) {
    const size_t end = std::min(events.find('\n'), events.size());
    std::string_view line = events.substr(0, end);
    events.remove_prefix(std::min(end + 1, events.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (is_last_line(line, framing, one_answer)) return true;
  }
  return false;
}

}  // namespace headrace
