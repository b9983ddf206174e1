// The events of a stream that differ in one text: what stands around the text is made once.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

class EventFrame {
 public:
  EventFrame() = default;
  // `event`: one whose text is empty, as it is sent. `key`: the member that holds the text, the
  // last of that name whose text is empty. REQUIRES: there is one
  EventFrame(std::string_view event, std::string_view key);

  bool empty() const { return before_.empty(); }
  // Appends the event with this text.
  void append(std::string& out, std::string_view text) const;

 private:
  std::string before_, behind_;
};

}  // namespace headrace
