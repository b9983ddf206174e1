// Any vocabulary and merges: refused with a Status or usable, never a crash. With bytes of its own
// in front, so that merges can refer to them.
#include <algorithm>
#include <cstdint>
#include <string>

#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/vocab_fixture.h"

using namespace headrace;

namespace {

// "KIND TOKEN" lines of single bytes: a to z, or all 256 (slower by far, so only where asked for).
std::string byte_lines(int first, int last) {
  std::string lines;
  for (int byte = first; byte <= last; ++byte) {
    lines += "1 " + spell_bytes(std::string(1, static_cast<char>(byte))) + "\n";
  }
  return lines;
}

// The models that have scores for their tokens, and what a vocabulary can say against itself.
void set_model(int choice, Vocab& vocab) {
  if (choice == 0) return;
  const bool broken = choice > 4;
  vocab.model = choice % 2 ? "llama" : "t5";
  vocab.add_eos = choice > 2;
  for (size_t id = 0; id + broken < vocab.tokens.size(); ++id) {
    vocab.scores.push_back(-static_cast<double>(id * 7 % 13));
  }
  if (choice == 6) vocab.scores.clear();
  if (choice == 7) vocab.end_ids.push_back(-1);
  if (choice == 7) vocab.scores.resize(vocab.tokens.size());
  if (choice == 4) vocab.added.push_back({static_cast<TokenId>(vocab.tokens.size() % 3) - 1, {}});
  if (choice == 6) vocab.merge_pairs.emplace_back("a", "b");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const uint8_t flags = data[0];
  std::string text(reinterpret_cast<const char*>(data + 4), size - 4);
  static const std::string kLetters = byte_lines('a', 'z'), kAllBytes = byte_lines(0, 255);
  if (flags & 1) text = ((flags & 2) && data[3] < 16 ? kAllBytes : kLetters) + text;
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
  set_model(data[3] >> 5, vocab);
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
  for (TokenId id : *ids) {
    CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
    (void)(*tokenizer)->token_bytes(id);
    (void)(*tokenizer)->is_control(id);
  }
  CHECK((*tokenizer)->token_bytes(-1).empty() && !(*tokenizer)->is_end((*tokenizer)->vocab_size()));
  (void)(*tokenizer)->decode(*ids, flags & 128);
  return 0;
}
