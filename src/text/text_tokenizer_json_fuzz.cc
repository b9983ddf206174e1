// Any tokenizer.json (and, behind a NUL byte, tokenizer_config.json): refused with a Status, or a
// tokenizer that encodes and decodes any text, never a crash. Ids stay in the vocabulary, and no
// control token comes of plain text but the unknown one.
#include <cstdint>
#include <string>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

using namespace headrace;

namespace {

constexpr std::string_view kTexts[] = {
    "",
    "Hello  World, it's 2024!\n\n\tcafe\u0301 \u00c5ngstr\u00f6m \u2581 \uff76\uff9e \u4f60\u597d "
    "\U0001F600 <s></s><0x0A> ab\xff\xc3 zz",
    "  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa  \r\n",
};

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text);
  if (!ids.ok()) return;  // PCRE2's match limit
  for (const TokenId id : *ids) CHECK(id >= 0 && id < tokenizer.vocab_size());
  const auto plain = tokenizer.encode(text, {.add_special = false});
  CHECK(plain.ok());
  Detokenizer detokenizer(tokenizer, true);
  for (const TokenId id : *plain) {
    CHECK(!tokenizer.is_control(id) || id == tokenizer.vocab().unk);
    (void)detokenizer.push(id);
  }
  (void)detokenizer.flush();
  (void)tokenizer.decode(*plain, false);
  (void)tokenizer.encode(text, {.parse_special = true});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = std::min(input.find('\0'), input.size());
  const std::string_view config = input.substr(std::min(split + 1, input.size()));
  Result<Vocab> vocab =
      vocab_from_tokenizer_json({.tokenizer = input.substr(0, split), .tokenizer_config = config});
  if (!vocab.ok()) return 0;
  const auto tokenizer = Tokenizer::create(*std::move(vocab));
  if (!tokenizer.ok()) return 0;
  for (const std::string_view text : kTexts) check_text(**tokenizer, text);
  check_text(**tokenizer, input.substr(0, 256));
  return 0;
}
