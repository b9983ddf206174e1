// Any bytes as text: encode and decode give them back, no control token comes of them, and the
// stream of deltas is the one-shot text.
#include <cstdint>
#include <string>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/vocab_fixture.h"

using namespace headrace;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizers[] = {
      *Tokenizer::create(tiny_vocab()),
      *Tokenizer::create([] {
        Vocab vocab = tiny_vocab();
        vocab.pre = "smollm";
        return vocab;
      }()),
  };
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Tokenizer& tokenizer = *tokenizers[size % 2];
  const auto ids = tokenizer.encode(text, {.add_special = false});
  CHECK(ids.ok());
  CHECK(tokenizer.decode(*ids, false) == text);
  Detokenizer detokenizer(tokenizer, true);
  std::string streamed;
  for (TokenId id : *ids) {
    CHECK(!tokenizer.is_control(id));
    streamed += detokenizer.push(id);
  }
  CHECK(streamed + detokenizer.flush() == replace_invalid_utf8(text));
  const auto parsed = tokenizer.encode(text, {.add_special = false, .parse_special = true});
  CHECK(tokenizer.decode(*parsed, false) == text);
  return 0;
}
