#include "text/unigram.h"

#include <algorithm>

#include <fmt/core.h>

#include "text/utf8.h"

namespace headrace {
namespace {

constexpr size_t kTokenBytesMax = size_t{1} << 14;

// How much worse an unknown character is than the worst token, as SentencePiece has it.
constexpr double kUnknownPenalty = 10;

bool is_text(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined ||
         kind == TokenKind::kByte || kind == TokenKind::kUnused;
}

}  // namespace

// The best way to cut the text that ends at a place.
struct Unigram::Cut {
  double score = 0;
  uint32_t begin = UINT32_MAX;  // of its last token; UINT32_MAX = no way yet
  TokenId id = -1;              // of its last token; -1 = unknown character
};

Result<std::unique_ptr<TokenModel>> Unigram::create(const Vocab& vocab,
                                                    const TokenModelOptions& options) {
  if (vocab.scores.size() != vocab.tokens.size()) {
    return corrupt(
        fmt::format("{} token scores for {} tokens", vocab.scores.size(), vocab.tokens.size()),
        "scores");
  }
  size_t byte_count = 0;
  for (const std::string_view token : vocab.tokens) {
    if (token.size() > kTokenBytesMax) {
      return corrupt(
          fmt::format("a token has {} bytes, more than {}", token.size(), kTokenBytesMax),
          "tokens");
    }
    byte_count += token.size();
  }
  return std::unique_ptr<TokenModel>(new Unigram(vocab, options, byte_count));
}

Unigram::Unigram(const Vocab& vocab, const TokenModelOptions& options, size_t byte_count)
    : vocab_(vocab), options_(options), bytes_(vocab), trie_(byte_count) {
  double score_min = 0;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    score_min = id == 0 ? vocab.scores[id] : std::min(score_min, vocab.scores[id]);
    if (vocab.tokens[id].empty() || !is_text(vocab.kind(static_cast<TokenId>(id)))) continue;
    const uint32_t node = trie_.insert(vocab.tokens[id]);
    ids_.resize(trie_.node_count(), -1);
    if (ids_[node] < 0) ids_[node] = static_cast<TokenId>(id);
  }
  ids_.resize(trie_.node_count(), -1);
  unknown_score_ = score_min - kUnknownPenalty;
}

std::vector<Unigram::Cut> Unigram::best_cuts(std::string_view piece) const {
  std::vector<Cut> best(piece.size() + 1);  // by end
  const auto offer = [&](size_t begin, size_t end, double score, TokenId id) {
    Cut& cut = best[end];
    const double total = best[begin].score + score;
    if (cut.begin == UINT32_MAX || total > cut.score) {
      cut = {total, static_cast<uint32_t>(begin), id};
    }
  };
  for (size_t begin = 0; begin < piece.size();) {
    const size_t length = utf8_step(piece.substr(begin)).length;
    bool known = false;  // the character itself is a token
    uint32_t node = ByteTrie::kRoot;
    for (size_t at = begin; at < piece.size(); ++at) {
      node = trie_.step(node, piece[at]);
      if (node == ByteTrie::kNoNode) break;
      const TokenId id = ids_[node];
      if (id < 0) continue;
      known |= at + 1 - begin == length;
      offer(begin, at + 1, vocab_.scores[static_cast<size_t>(id)], id);
    }
    if (!known) offer(begin, begin + length, unknown_score_, -1);
    begin += length;
  }
  return best;
}

void Unigram::encode(std::string_view piece, std::vector<TokenId>& out) const {
  const std::vector<Cut> best = best_cuts(piece);
  std::vector<uint32_t> ends;  // of the tokens, last first
  for (size_t end = piece.size(); end > 0; end = best[end].begin) {
    ends.push_back(static_cast<uint32_t>(end));
  }
  size_t unknown_begin = 0, unknown_end = 0;  // unknown characters one after the other
  const auto flush = [&] {
    if (unknown_end > unknown_begin) {
      emit_unknown(piece.substr(unknown_begin, unknown_end - unknown_begin), out);
    }
    unknown_begin = unknown_end;
  };
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const Cut& cut = best[*end];
    if (cut.id < 0) {
      if (unknown_end != cut.begin || !options_.fuse_unk) {
        flush();
        unknown_begin = cut.begin;
      }
      unknown_end = *end;
    } else {
      flush();
      out.push_back(cut.id);
    }
  }
  flush();
}

void Unigram::emit_unknown(std::string_view text, std::vector<TokenId>& out) const {
  if (options_.byte_fallback && bytes_.has_all(text)) {
    for (const char byte : text) out.push_back(bytes_.id(static_cast<uint8_t>(byte)));
  } else if (vocab_.unk >= 0) {
    out.push_back(vocab_.unk);
  }
}

}  // namespace headrace
