// Chat templates: the subset of Jinja 2 that model files use, rendered as Hugging Face does
// (trim_blocks, lstrip_blocks, a sandbox without mutation). No host objects: a template reaches
// nothing but its variables. What is not supported is refused at compile with its line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/vocab.h"

namespace headrace {

struct TemplateLimits {
  int64_t steps_max = 1'000'000;  // evaluated nodes, loop turns, and each KiB of text made
  int depth_max = 64;             // nesting of blocks and expressions, and of values
  size_t output_bytes_max = size_t{32} << 20;  // also of any one string; four times that live
  size_t source_bytes_max = size_t{1} << 20;
};

struct TemplateProgram;

// Immutable after compile(); any thread.
class ChatTemplate {
 public:
  // kInvalidArgument with "line N: ..." for what is wrong or not supported.
  static Result<ChatTemplate> compile(std::string_view source, TemplateLimits limits = {});

  // variables: an object; its members are the template's globals. kInvalidArgument with
  // "line N: ..." for errors of the template or its raise_exception(), kExhausted over a limit.
  // now_unix_s is what strftime_now() shows (UTC).
  Result<std::string> render(const Json& variables, int64_t now_unix_s) const;
  // As above, at the time of the call.
  Result<std::string> render(const Json& variables) const;

  // False: no value of that variable changes what is rendered. (True also where it is a word of
  // the template's texts.)
  bool may_read(std::string_view variable) const;
  std::string_view source() const;

 private:
  explicit ChatTemplate(std::shared_ptr<const TemplateProgram> program);
  std::shared_ptr<const TemplateProgram> program_;
};

// Renders a chat. `messages` is an array of objects, `tools` an array or null, `extra` an object of
// further variables (they win) or null. A template that reads `thinking` finds a message's
// `reasoning_content` there, too. Fills bos_token, eos_token, pad_token and unk_token from
// `vocab`.
Result<std::string> render_chat(const ChatTemplate& chat_template, const Vocab& vocab,
                                Json messages, Json tools, bool add_generation_prompt, Json extra);

}  // namespace headrace
