#include "text/vocab_fixture.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <sstream>

#include <fmt/core.h>

#include "text/byte_level.h"

namespace headrace {
namespace {

// Every token of the tiny vocabulary that is made of others, in rank order.
constexpr std::string_view kTinyMerges[] = {
    "h e",     "l l",  "he ll", "hell o",    "Ġ w", "o r",   "Ġw or",  "l d",
    "Ġwor ld", "a a",  "aa aa", "aaaa aaaa", "Ġ Ġ", "ĠĠ ĠĠ", "ð Ł",    "ðŁ ĺ",
    "ðŁĺ Ģ",   "Ã ©",  "e r",   "er e",      "' s", "t h",   "th ere", "1 2",
    "Ċ Ċ",     "Ġ th", "i n",   "in g",      "a b", "ab c",  "b c",    "é ¾",
};

}  // namespace

Vocab vocab_from_text(std::string_view text, std::string pre) {
  struct Storage {
    std::string text;
    std::vector<std::string> products;
  };
  auto storage = std::make_shared<Storage>();
  storage->text = text;
  Vocab vocab;
  vocab.model = "gpt2";
  vocab.pre = std::move(pre);
  std::string_view rest = storage->text;
  bool in_merges = false;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) {
      in_merges = true;
    } else if (in_merges) {
      vocab.merges.push_back(line);
    } else {
      vocab.kinds.push_back(static_cast<TokenKind>(line[0] - '0'));
      vocab.tokens.push_back(line.substr(2));
    }
  }
  storage->products.reserve(vocab.merges.size());
  for (std::string_view merge : vocab.merges) {
    const size_t space = merge.find(' ');
    storage->products.push_back(std::string(merge.substr(0, space)) +
                                std::string(merge.substr(space + 1)));
    vocab.tokens.push_back(storage->products.back());
    vocab.kinds.push_back(TokenKind::kNormal);
  }
  vocab.storage = std::move(storage);
  return vocab;
}

Vocab smollm2_vocab() {
  std::ifstream file("tests/data/text/smollm2_bpe.txt", std::ios::binary);
  CHECK_MSG(file.good(), "run from the source root");
  std::ostringstream text;
  text << file.rdbuf();
  Vocab vocab = vocab_from_text(text.str(), "smollm");
  vocab.bos = 1;
  vocab.eos = 2;
  vocab.unk = 0;
  vocab.pad = 2;
  add_known_end_ids(vocab);
  return vocab;
}

Vocab tiny_vocab() {
  std::string text = "3 <|endoftext|>\n3 <|im_start|>\n3 <|im_end|>\n3 <s>\n4 <tool>\n";
  for (int byte = 0; byte < 256; ++byte) {
    text += "1 " + spell_bytes(std::string(1, static_cast<char>(byte))) + "\n";
  }
  text += "\n";
  for (std::string_view merge : kTinyMerges) text.append(merge).append("\n");
  Vocab vocab = vocab_from_text(text, "gpt-2");
  vocab.bos = 3;
  vocab.eos = 0;
  vocab.add_bos = true;
  add_known_end_ids(vocab);
  return vocab;
}

Vocab sentence_piece_vocab(std::string model) {
  auto storage = std::make_shared<std::deque<std::string>>();
  Vocab vocab;
  vocab.model = std::move(model);
  const auto add = [&](std::string text, TokenKind kind, double score) {
    vocab.tokens.push_back(storage->emplace_back(std::move(text)));
    vocab.kinds.push_back(kind);
    vocab.scores.push_back(score);
  };
  add("<unk>", TokenKind::kUnknown, 0);
  add("<s>", TokenKind::kControl, 0);
  add("</s>", TokenKind::kControl, 0);
  add("<tool>", TokenKind::kUserDefined, 0);
  for (int byte = 0; byte < 256; ++byte)
    add(fmt::format("<0x{:02X}>", byte), TokenKind::kByte, -50);
  add("\xE2\x96\x81", TokenKind::kNormal, -40);
  // A third of all texts of two to four letters, in an order that has nothing to do with length.
  uint32_t state = 1;
  for (int length = 1; length <= 4; ++length) {
    for (int word = 0; word < 1 << (2 * length); ++word) {
      std::string text;
      for (int i = 0; i < length; ++i) text += "abcd"[word >> (2 * i) & 3];
      state = state * 1664525 + 1013904223;
      const double score = -5.0 - (state >> 16) % 1000 * 0.01;
      if (length == 1 || state >> 30 == 0 || text == "ab" || text == "cd") {
        add(std::move(text), TokenKind::kNormal, score);
      }
    }
  }
  vocab.bos = 1;
  vocab.eos = 2;
  vocab.unk = 0;
  vocab.storage = std::move(storage);
  add_known_end_ids(vocab);
  return vocab;
}

std::string family_file(const std::string& name) {
  std::ifstream file("tests/data/text/tokenizers/" + name, std::ios::binary);
  CHECK_MSG(file.good(), "run from the source root");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace headrace
