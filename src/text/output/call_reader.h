// Reads the calls behind one opening mark, a byte at a time: the grammar of a dialect.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "text/output/tool_list.h"

namespace headrace {

// What a reader reports: for each call begin(), fragments, end().
class CallSink {
 public:
  virtual ~CallSink() = default;
  // From here on the call is told, and cannot become content any more.
  virtual void begin(std::string_view name, std::string_view id) = 0;
  virtual void arguments(std::string_view fragment) = 0;
  virtual void end() = 0;
};

class CallReader {
 public:
  enum class Step : uint8_t {
    kTaken,
    kDone,        // with this byte; at least one call was reported
    kDoneBefore,  // this byte is not part of the calls
    kBroken,      // this byte cannot stand here
  };
  virtual ~CallReader() = default;
  virtual Step read(char c, CallSink& sink) = 0;
  // The text ends inside: ends the JSON of a call that lacks closing marks only.
  virtual void finish(CallSink&) {}
  // What was read behind the last call is a part of them, and no words.
  virtual bool is_closed() const { return false; }
};

inline bool is_layout_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// `tools`: where not null, other names make no call, for forms that are told from JSON or a list by
// nothing else. `keyed`: a call is {NAME: ARGUMENTS}.
std::unique_ptr<CallReader> make_json_call_reader(const ToolList* tools, bool keyed = false);

}  // namespace headrace
