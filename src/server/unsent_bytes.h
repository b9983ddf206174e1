// Bytes that a connection has to say and its client has not taken.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace headrace {

class UnsentBytes {
 public:
  // Where new bytes are appended, also while others are being written.
  std::string& tail() { return tail_; }
  size_t size() const { return tail_.size() + sending_.size() - sent_; }

  // The bytes to write next; empty: there are none. They stay where they are until they were sent,
  // or next() is called again.
  std::string_view next() {
    if (sent_ == sending_.size()) {
      sending_.clear();
      sent_ = 0;
      std::swap(sending_, tail_);
    }
    return std::string_view(sending_).substr(sent_);
  }
  // The client took so many of next().
  void on_sent(size_t count) { sent_ += count; }

 private:
  std::string tail_, sending_;
  size_t sent_ = 0;  // of sending_
};

}  // namespace headrace
