// Any vocabulary and merges: refused with a Status or usable, never a crash. With bytes of its own
// in front, so that merges can refer to them.
#include <algorithm>
#include <cstdint>
#include <string>

#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/vocab_fixtures.h"

using namespace headrace;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const uint8_t flags = data[0];
  std::string text(reinterpret_cast<const char*>(data + 4), size - 4);
  if (flags & 1) {
    std::string bytes;
    for (int byte = 0; byte < 256; byte += flags & 2 ? 1 : 3) {
      bytes += "1 " + spell_bytes(std::string(1, static_cast<char>(byte))) + "\n";
    }
    text = bytes + text;
  }
  // "KIND TOKEN" lines: the fixture reader wants both, so shorter lines are left out.
  std::string lines;
  bool in_merges = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (line.empty()) in_merges = true;
    if (in_merges || line.size() >= 2) lines += line + "\n";
    at = end + 1;
  }
  Vocab vocab = vocab_from_text(lines, flags & 4 ? "smollm" : "gpt-2");
  if ((flags & 8) && !vocab.kinds.empty()) vocab.kinds.pop_back();
  vocab.bos = static_cast<int8_t>(data[1]);
  vocab.eos = static_cast<int8_t>(data[2]);
  vocab.add_bos = flags & 16;
  vocab.add_space_prefix = flags & 32;
  add_known_end_ids(vocab);
  const auto tokenizer = Tokenizer::create(std::move(vocab));
  if (!tokenizer.ok()) return 0;
  const auto ids = (*tokenizer)->encode(text, {.parse_special = (flags & 64) != 0});
  CHECK(ids.ok());
  for (TokenId id : *ids) CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
  (void)(*tokenizer)->decode(*ids, flags & 128);
  return 0;
}
