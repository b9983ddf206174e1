#include "text/rwkv_vocab.h"

#include <charconv>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include <fmt/core.h>

#include "text/utf8.h"

namespace headrace {
namespace {

constexpr TokenId kIdMax = 1 << 24;

// The memory behind a vocabulary's tokens.
struct OwnedTokens {
  std::shared_ptr<const void> file;
  std::deque<std::string> texts;
};

std::optional<uint32_t> hex_digits(std::string_view digits) {
  uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// What an escape stands for besides a code; the letter itself where it is none.
char plain_escape(char letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return letter;
  }
}

// The bytes of what stands between quotes; empty: it is no such literal. `code_points`: \xe9 is a
// character, not a byte.
std::optional<std::string> unescaped(std::string_view text, bool code_points) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char letter = text[++i];
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (digits == 0) {
      out += plain_escape(letter);
      continue;
    }
    const auto value = hex_digits(text.substr(i + 1, digits));
    if (!value || text.size() - i - 1 < digits || *value > 0x10FFFF) return std::nullopt;
    if (code_points) {
      append_utf8(static_cast<char32_t>(*value), out);
    } else {
      out += static_cast<char>(*value);
    }
    i += digits;
  }
  return out;
}

// 'a', "a" or b'a'.
std::optional<std::string> read_literal(std::string_view text) {
  const bool bytes = text.starts_with('b');
  if (bytes) text.remove_prefix(1);
  const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                      (text.front() == '\'' || text.front() == '"');
  if (!quoted) return std::nullopt;
  return unescaped(text.substr(1, text.size() - 2), !bytes);
}

struct WorldLine {
  TokenId id = -1;
  std::string token;
};

std::optional<WorldLine> read_line(std::string_view line) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || last <= first) return std::nullopt;
  WorldLine read;
  size_t length = 0;
  const auto number = [](std::string_view digits, auto& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  if (!number(line.substr(0, first), read.id) || !number(line.substr(last + 1), length)) {
    return std::nullopt;
  }
  auto token = read_literal(line.substr(first + 1, last - first - 1));
  if (!token || token->size() != length || length == 0) return std::nullopt;
  read.token = *std::move(token);
  return read;
}

}  // namespace

Result<Vocab> rwkv_world_vocab(std::string_view text) {
  auto owned = std::make_shared<OwnedTokens>();
  Vocab vocab;
  vocab.model = "rwkv";
  vocab.pre = "default";
  vocab.tokens = {"<|rwkv_tokenizer_end_of_text|>"};
  vocab.kinds = {TokenKind::kControl};
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    auto read = read_line(line);
    if (!read || read->id < std::ssize(vocab.tokens) || read->id > kIdMax) {
      return corrupt(fmt::format("line {}: is no token behind the one before", number), "tokens");
    }
    const auto id = static_cast<size_t>(read->id);
    vocab.tokens.resize(id, "");
    vocab.kinds.resize(id, TokenKind::kUnused);
    vocab.tokens.push_back(owned->texts.emplace_back(std::move(read->token)));
    vocab.kinds.push_back(TokenKind::kNormal);
  }
  vocab.storage = std::move(owned);
  vocab.bos = vocab.eos = 0;
  add_known_end_ids(vocab);
  return vocab;
}

void unescape_rwkv_tokens(Vocab& vocab) {
  auto owned = std::make_shared<OwnedTokens>();
  owned->file = std::move(vocab.storage);
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    std::string_view& token = vocab.tokens[id];
    if (vocab.kind(static_cast<TokenId>(id)) != TokenKind::kNormal) continue;
    if (token.find('\\') == token.npos) continue;
    if (auto bytes = unescaped(token, /*code_points=*/false)) {
      token = owned->texts.emplace_back(*std::move(bytes));
    }
  }
  vocab.storage = std::move(owned);
}

}  // namespace headrace
