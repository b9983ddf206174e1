// The seam between the text of a choice and the form of an answer. A protocol (chat completions,
// ...) is a format of events; what a family of models writes is a parser that makes them.
//
// A parser sees bytes, one after the other: where the text was cut into deltas cannot matter. It
// holds back what may still become a mark of the dialect, the white space in front of it, and a
// call until the name is known and the arguments have begun. Nothing is lost: a call that is none
// comes back as content; one whose arguments stop being JSON ends there, and the rest is content.
// White space and closing marks that touch a call or the thoughts are layout and go with them.
#pragma once

#include <memory>
#include <string_view>

#include "text/output/output_event.h"
#include "text/output/tool_list.h"

namespace headrace {

struct OutputDialect;

// One thread at a time.
class OutputParser {
 public:
  virtual ~OutputParser() = default;
  // Appends what `text` makes certain.
  virtual void push(std::string_view text, OutputEvents& out) = 0;
  // The text ends here. Once.
  virtual void finish(OutputEvents& out) = 0;
  // Whether what comes next is a thought, as far as is known.
  virtual bool in_reasoning() const = 0;
  // One call was wanted and is complete: what follows is not looked at.
  virtual bool stopped() const = 0;
};

struct OutputOptions {
  std::shared_ptr<const ToolList> tools;  // nullptr: calls stay text
  bool reasoning = true;                  // false: thoughts stay text
  bool starts_in_reasoning = false;       // the prompt ends inside of a thought
  bool one_call = false;                  // the answer ends with its first call
  bool only_marked = false;               // a call has its mark: its form was enforced behind it
};

std::unique_ptr<OutputParser> make_output_parser(const OutputDialect& dialect,
                                                 OutputOptions options);
// gpt-oss: an answer is a sequence of messages.
std::unique_ptr<OutputParser> make_harmony_parser(OutputOptions options);

}  // namespace headrace
