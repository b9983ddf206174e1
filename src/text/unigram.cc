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

// Fills `best` from the text that ends at `begin` (whose total is `score`) to the next place over
// which no token goes, so that every way to cut the piece cuts there. Returns that place.
size_t Unigram::find_cuts(std::string_view piece, size_t begin, double score,
                          std::vector<Cut>& best) const {
  best.assign(1, Cut{.score = score});
  size_t reach = begin;  // where the longest token so far ends
  const auto offer = [&](size_t from, size_t end, double token_score, TokenId id) {
    if (end > reach) best.resize(end - begin + 1);
    reach = std::max(reach, end);
    Cut& cut = best[end - begin];
    const double total = best[from - begin].score + token_score;
    if (cut.begin == UINT32_MAX || total > cut.score) {
      cut = {total, static_cast<uint32_t>(from), id};
    }
  };
  for (size_t from = begin; from == begin || from < reach;) {
    const size_t length = utf8_step(piece.substr(from)).length;
    bool known = false;  // the character itself is a token
    uint32_t node = ByteTrie::kRoot;
    for (size_t at = from; at < piece.size(); ++at) {
      node = trie_.step(node, piece[at]);
      if (node == ByteTrie::kNoNode) break;
      const TokenId id = ids_[node];
      if (id < 0) continue;
      known |= at + 1 - from == length;
      offer(from, at + 1, vocab_.scores[static_cast<size_t>(id)], id);
    }
    if (!known) offer(from, from + length, unknown_score_, -1);
    from += length;
  }
  return reach;
}

void Unigram::encode(std::string_view piece, std::vector<TokenId>& out) const {
  std::vector<Cut> best;
  std::vector<size_t> ends;  // of the tokens, last first
  Unknown unknown;
  double score = 0;
  for (size_t begin = 0; begin < piece.size();) {
    const size_t end = find_cuts(piece, begin, score, best);
    score = best.back().score;
    ends.clear();
    for (size_t at = end; at > begin; at = best[at - begin].begin) ends.push_back(at);
    for (auto at = ends.rbegin(); at != ends.rend(); ++at) {
      const Cut& cut = best[*at - begin];
      if (cut.id >= 0) {
        emit_unknown(piece, unknown, out);
        out.push_back(cut.id);
      } else {
        if (!options_.fuse_unk) emit_unknown(piece, unknown, out);
        if (unknown.begin == unknown.end) unknown.begin = cut.begin;
        unknown.end = *at;
      }
    }
    begin = end;
  }
  emit_unknown(piece, unknown, out);
}

// Ends a run of unknown characters, if there is one.
void Unigram::emit_unknown(std::string_view piece, Unknown& unknown,
                           std::vector<TokenId>& out) const {
  const std::string_view text = piece.substr(unknown.begin, unknown.end - unknown.begin);
  unknown = {};
  if (text.empty()) return;
  if (options_.byte_fallback && bytes_.has_all(text)) {
    for (const char byte : text) out.push_back(bytes_.id(static_cast<uint8_t>(byte)));
  } else if (vocab_.unk >= 0) {
    out.push_back(vocab_.unk);
  }
}

}  // namespace headrace
