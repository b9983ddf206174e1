// Chat messages -> prompt ids, such that nothing a user writes becomes a control token.
//
// The rendered text mixes the template's own control tokens with user text that may spell them.
// Where user strings spell one (or end in the beginning of one), the chat is rendered a second
// time with the first character of each such place replaced by a noncharacter that occurs nowhere
// else. In that text every control token left begins with a character of the template. Undoing
// the replacement must give the first rendering byte for byte; a template whose output depends on
// the replaced characters cannot be told apart from an attack, and the request is refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/status.h"
#include "text/chat_template.h"
#include "text/special_matcher.h"
#include "text/tokenizer.h"

namespace headrace {

struct ChatPromptOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;             // the prompt ends where its last content does
  bool add_special = false;                        // the template writes BOS itself
  size_t tokens_max = EncodeOptions().tokens_max;  // as there
};

// Immutable; any thread. Both arguments must outlive this.
class ChatPromptEncoder {
 public:
  static Result<std::unique_ptr<ChatPromptEncoder>> create(const Tokenizer& tokenizer,
                                                           const ChatTemplate& chat_template);

  // ChatTemplate::may_read()
  bool may_read(std::string_view variable) const { return chat_template_.may_read(variable); }
  // The template's text, byte for byte. kInvalidArgument where the template refuses, or does not
  // write the last content that is to be continued. A content that is null is an empty text for
  // templates that cannot do with null.
  Result<std::string> render(const Json& messages, const Json& variables,
                             ChatPromptOptions options) const;
  Result<std::vector<TokenId>> encode(const Json& messages, const Json& variables,
                                      ChatPromptOptions options) const;

 private:
  ChatPromptEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                    SpecialMatcher matcher);

  // Byte offsets in `text` where a control token's spelling begins (in any case of its letters),
  // or where the text ends inside one.
  bool begins_spelling(std::string_view text) const;
  std::vector<size_t> risky_places(std::string_view text) const;
  bool is_risky(const Json& value) const;

  // Replacements for the first characters of control tokens; none of them occurs in `rendered`.
  struct Shadows {
    std::string by_byte[256];  // UTF-8 of the stand-in; empty where no control token begins so
  };
  Result<Shadows> choose_shadows(const std::string& rendered) const;
  Json shadowed(const Json& value, const Shadows& shadows) const;
  std::string shadowed_text(std::string_view text, const Shadows& shadows) const;
  static std::string unshadowed(std::string_view text, const Shadows& shadows);
  Result<std::vector<TokenId>> encode_shadowed(std::string_view text, const Shadows& shadows,
                                               ChatPromptOptions options) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  const SpecialMatcher matcher_;
  std::vector<std::string> spellings_;  // of control tokens, lower case, sorted
  bool first_bytes_[256] = {};          // of control tokens, as spelled
};

}  // namespace headrace
