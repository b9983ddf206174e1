// Rows of dialect.h's tables, for the parsers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/output/call_forms.h"
#include "text/output/call_reader.h"
#include "text/output/dialect.h"

namespace headrace {

// What stands behind a name for the call's own id.
enum class CallIdForm : uint8_t {
  kNone,
  kNumber,  // up to three digits
  kNine,    // nine letters and digits
};

// One way of a dialect to write calls, where their form is enforced. MARK is any of the dialect's
// `opens`, CALL is
//   before_name NAME behind_name [ID behind_id] ARGUMENTS behind_arguments close
// (of a form that has the id in front: before_id ID before_name NAME behind_name ...), and an
// answer of calls is
//   marks_each: section_open lead MARK CALL (separator lead MARK CALL)* section_close
//   else:       section_open MARK list_open CALL (separator CALL)* list_close
// Marks of the dialect within these texts may come as the control tokens that are spelled so.
struct CallSpelling {
  std::string_view section_open = {}, section_close = {};
  std::string_view lead = {};
  std::string_view before_id = {}, before_name = {}, behind_name = {}, behind_id = {};
  std::string_view behind_arguments = {};
  // A call's end, behind which words may follow; empty: calls end the answer.
  std::string_view close = {};
  std::string_view behind_close = {};  // layout
  std::string_view list_open = {}, separator = {}, list_close = {};
  bool marks_each = true;
  CallIdForm id = CallIdForm::kNone;
  // Arguments stand between these tags, up to `end`, which is `close`, or are written as a program
  // writes them; both nullptr: they are JSON.
  const TaggedCallForm* tags = nullptr;
  const LooseCallForm* loose = nullptr;
  bool name_in_json = false;  // it is spelled as a string of JSON; else it is a plain word
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
  // Empty: the form of calls cannot be enforced (Harmony is apart: text/grammar/harmony_grammar.h).
  std::span<const CallSpelling> spellings = {};
  bool enforces_bare = false;  // calls without a mark are of the first spelling
  // Marks that end an answer's words, whether the request has tools or not.
  std::span<const std::string_view> answer_closes = {};
};

// Those of the dialect's calls: what opens them, layout, and what is inside of them.
std::vector<std::string_view> tool_marks(const ToolDialect& dialect);

struct ReasoningDialect {
  std::string_view names;
  std::string_view template_sign;  // empty: by name only
  std::string_view open, close;
  std::span<const std::string_view> inner = {};  // marks inside of marks
  // What stands around the words of an answer and is no part of them: in front of them, and at the
  // end of the answer or in front of a call.
  std::span<const std::string_view> answer_opens = {}, answer_closes = {};
  bool harmony = false;
  // An answer without a thought may begin with `close`.
  bool closes_unopened = false;
  bool calls_close = false;  // a call that opens inside of a thought ends it
  bool in_content = false;   // thoughts are not told apart: they are content with their marks
};

std::span<const ToolDialect> tool_dialects();
std::span<const ReasoningDialect> reasoning_dialects();

}  // namespace headrace
