// A small text model for tests: every byte is a token, so characters and stop strings come split.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/fake_engine.h"
#include "server/served_model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace headrace {

inline constexpr std::string_view kChatMlTemplate =
    "{% if tools %}{{ tools | tojson + '\\n' }}{% endif %}"
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
    "}}"
    "{% endif %}";

struct TestModel {
  // `script`: what the engine answers, byte by byte, then its end token; empty: hashes. A byte 0x1E
  // stands between the answers of one request and the next.
  explicit TestModel(FakeEngineOptions options = {}, std::string_view script = "");

  ServedModel served() const;
  TokenId byte_token(unsigned char byte) const;
  TokenId control(std::string_view spelling) const;

  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::unique_ptr<FakeEngine> engine;
};

}  // namespace headrace
