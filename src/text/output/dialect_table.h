// Rows of dialect.h's tables, for the parsers.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "text/output/call_reader.h"
#include "text/output/dialect.h"

namespace headrace {

// How a call is written where its form is enforced:
// open before_name NAME behind_name ARGUMENTS behind_arguments close
struct CallSpelling {
  std::string_view open, close;  // marks
  std::string_view before_name, behind_name, behind_arguments;
};

struct ToolDialect {
  std::string_view names;  // with commas; the first is the name that is shown
  // All of them stand in the chat templates of these models; empty: by name only.
  std::span<const std::string_view> template_signs;
  std::string_view template_lacks = {};          // and this does not
  std::span<const std::string_view> opens;       // a call, or several, follow
  std::span<const std::string_view> layout;      // may stand in front of, between and behind calls
  std::span<const std::string_view> inner = {};  // marks inside of calls
  // What smaller models write in place of `opens`, and what may be words as well: a call follows
  // only where it has the name of a tool.
  std::span<const std::string_view> loose_opens = {};
  char bare_open = 0;  // begins calls without a mark where it is the first character of an answer
  std::unique_ptr<CallReader> (*make_reader)(const ToolList& tools, bool bare) = nullptr;
  CallIdStyle ids = CallIdStyle::kCall;
  bool harmony = false;
  const CallSpelling* spelling = nullptr;  // nullptr: the form of calls cannot be enforced
};

struct ReasoningDialect {
  std::string_view names;
  std::string_view template_sign;
  std::string_view open, close;
  bool harmony = false;
};

std::span<const ToolDialect> tool_dialects();
std::span<const ReasoningDialect> reasoning_dialects();

}  // namespace headrace
