// Grammars of calls as data, and the readers that take them. A form must outlive its readers.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "text/output/call_reader.h"

namespace headrace {

// NAME mark {...}
struct NamedCallForm {
  std::string_view prefix;     // in front of the name
  std::string_view mark;       // between it and the arguments
  std::string_view id_mark;    // in front of an id, which goes up to `mark`
  bool mark_may_lack = false;  // the arguments may follow the name at once
  bool name_is_id = false;     // functions.NAME:NUMBER
};
std::unique_ptr<CallReader> make_named_call_reader(const NamedCallForm& form);
// What follows [TOOL_CALLS]: that, or a JSON list.
std::unique_ptr<CallReader> make_mistral_call_reader(const NamedCallForm& form);

// NAME name_end [NUMBER number_end]
//   (argument_open KEY key_end [KIND kind_end] value_open VALUE value_close)* end
// where VALUE may be text_open TEXT text_close. Where a value's end names it (NestedCallForm, which
// is read by its own reader), close_key_open KEY close_key_end follow value_close.
struct TaggedCallForm {
  static constexpr std::string_view kFalse[] = {"false"};

  std::string_view name_end;  // empty: a name ends in front of what is none
  std::string_view argument_open, key_end;
  std::string_view kind_end;    // where not empty: KIND is text_kind for a string, else it is JSON
  std::string_view value_open;  // white space may stand in front of it
  std::string_view value_close, end;
  bool lines = false;  // a value stands on lines of its own
  std::string_view close_key_open = {}, close_key_end = {};
  std::string_view text_kind = "true";
  std::span<const std::string_view> json_kinds = kFalse;
  std::string_view number_end = {};  // of a form that counts its calls
  std::string_view text_open = {}, text_close = {};

  bool closes_by_key() const { return !close_key_end.empty(); }
};
std::unique_ptr<CallReader> make_tagged_call_reader(const TaggedCallForm& form,
                                                    const ToolList& tools);

// NAME name_end MEMBER* mark </call>, where MEMBER is mark <KEY> VALUE mark </KEY>, and VALUE is
// text or MEMBERs: of a list with the name list_member.
struct NestedCallForm {
  std::string_view mark;  // stands in front of each tag, and nowhere else
  std::string_view name_end;
  std::string_view call, list_member;
};
std::unique_ptr<CallReader> make_nested_call_reader(const NestedCallForm& form,
                                                    const ToolList& tools);

// What stands between the brackets of a call: KEY key_end VALUE (", " KEY key_end VALUE)*. VALUE is
// JSON; a text stands between two `quote`s, where there are such; else words may be Python's.
struct LooseCallForm {
  std::string_view key_end;
  std::string_view quote = {};
};

// NAME(KEY=VALUE, ...) with Python's values. `brackets`: [f(), g()]; else one after the other.
std::unique_ptr<CallReader> make_python_call_reader(const ToolList* tools, bool brackets);

// call:NAME{KEY:VALUE,...} with bare keys, and strings between two `quote`s.
std::unique_ptr<CallReader> make_gemma_call_reader(std::string_view quote);

inline bool is_call_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == ':' || c == '/';
}

}  // namespace headrace
