#include "text/bpe.h"

#include <algorithm>
#include <queue>

#include <fmt/core.h>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace headrace {
namespace {

// Pieces of up to this many symbols (nearly all words) are merged by scanning an array on the
// stack; longer ones through a heap.
constexpr size_t kShortPiece = 32;

// The id of left + right. Merges come in the order in which they made tokens, so the id after the
// last product is nearly always right: one comparison instead of a hash of the joined text.
TokenId find_product(const Vocab& vocab, const TokenTable& table, std::string_view merge,
                     size_t space, TokenId guess) {
  const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
  if (guess >= 0 && static_cast<size_t>(guess) < vocab.tokens.size()) {
    const std::string_view token = vocab.tokens[static_cast<size_t>(guess)];
    if (token.size() == left.size() + right.size() && token.starts_with(left) &&
        token.ends_with(right)) {
      return guess;
    }
  }
  std::string joined(left);
  joined += right;
  return table.find(joined);
}

Status bad_merge(size_t rank, std::string_view why) {
  return corrupt(fmt::format("merges[{}] {}", rank, why), "merges");
}

}  // namespace

Result<BpeMerges> BpeMerges::create(const Vocab& vocab, const TokenTable& table) {
  BpeMerges merges(vocab.merges.size());
  std::string letter;
  for (int byte = 0; byte < 256; ++byte) {
    letter.clear();
    append_utf8(byte_to_letter(static_cast<uint8_t>(byte)), letter);
    const TokenId id = table.find(letter);
    const bool usable = id >= 0 && vocab.kind(id) != TokenKind::kControl;
    merges.byte_ids_[static_cast<size_t>(byte)] = usable ? id : -1;
  }
  merges.products_.reserve(vocab.merges.size());
  TokenId guess = -1;
  for (size_t rank = 0; rank < vocab.merges.size(); ++rank) {
    const std::string_view merge = vocab.merges[rank];
    const size_t space = merge.find(' ');
    if (space == 0 || space == merge.npos || space + 1 == merge.size()) {
      return bad_merge(rank, "is not two tokens with a space between");
    }
    const TokenId left = table.find(merge.substr(0, space));
    const TokenId right = table.find(merge.substr(space + 1));
    if (left < 0 || right < 0) return bad_merge(rank, "joins a text that is no token");
    const TokenId product = find_product(vocab, table, merge, space, guess);
    if (product < 0) return bad_merge(rank, "makes a text that is no token");
    if (vocab.kind(product) == TokenKind::kControl) return bad_merge(rank, "makes a control token");
    guess = product + 1;
    merges.products_.push_back(product);
    merges.ranks_.insert(static_cast<uint32_t>(left), static_cast<uint32_t>(right),
                         static_cast<uint32_t>(rank));
  }
  return merges;
}

bool BpeMerges::has_all_bytes() const {
  return std::all_of(byte_ids_.begin(), byte_ids_.end(), [](TokenId id) { return id >= 0; });
}

void BpeMerges::encode(std::string_view piece, std::vector<TokenId>& out) const {
  std::array<TokenId, kShortPiece> short_symbols;
  std::vector<TokenId> long_symbols;
  TokenId* symbols = short_symbols.data();
  if (piece.size() > kShortPiece) {
    long_symbols.resize(piece.size());
    symbols = long_symbols.data();
  }
  size_t count = 0;
  for (char byte : piece) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id >= 0) symbols[count++] = id;
  }
  if (count <= kShortPiece) {
    merge_short({symbols, count}, out);
  } else {
    merge_long({symbols, count}, out);
  }
}

void BpeMerges::merge_short(std::span<const TokenId> symbols, std::vector<TokenId>& out) const {
  std::array<TokenId, kShortPiece> ids;
  std::array<uint32_t, kShortPiece> ranks;  // ranks[i]: of the pair (i, i + 1)
  size_t count = symbols.size();
  std::copy(symbols.begin(), symbols.end(), ids.begin());
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = rank(ids[i], ids[i + 1]);
  while (count > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.begin() + (count - 1));
    if (*best == PairTable::kNone) break;
    const size_t at = static_cast<size_t>(best - ranks.begin());
    ids[at] = products_[*best];
    std::copy(ids.begin() + at + 2, ids.begin() + count, ids.begin() + at + 1);
    std::copy(ranks.begin() + at + 1, ranks.begin() + (count - 1), ranks.begin() + at);
    --count;
    if (at > 0) ranks[at - 1] = rank(ids[at - 1], ids[at]);
    if (at + 1 < count) ranks[at] = rank(ids[at], ids[at + 1]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + count);
}

void BpeMerges::merge_long(std::span<const TokenId> symbols, std::vector<TokenId>& out) const {
  constexpr TokenId kGone = -1;
  struct Node {
    TokenId id;
    uint32_t previous, next;  // index; the end is the node count
  };
  const uint32_t end = static_cast<uint32_t>(symbols.size());
  std::vector<Node> nodes(symbols.size());
  for (uint32_t i = 0; i < end; ++i) nodes[i] = {symbols[i], i == 0 ? end : i - 1, i + 1};

  const auto rank_at = [&](uint32_t left) {
    if (left == end || nodes[left].next == end) return PairTable::kNone;
    return rank(nodes[left].id, nodes[nodes[left].next].id);
  };
  std::vector<uint64_t> initial;  // rank << 32 | index of the left symbol
  initial.reserve(symbols.size());
  for (uint32_t i = 0; i < end; ++i) {
    const uint32_t r = rank_at(i);
    if (r != PairTable::kNone) initial.push_back(uint64_t{r} << 32 | i);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>(),
                                                                             std::move(initial));
  const auto push = [&](uint32_t left) {
    const uint32_t r = rank_at(left);
    if (r != PairTable::kNone) queue.push(uint64_t{r} << 32 | left);
  };
  while (!queue.empty()) {
    const uint32_t best_rank = static_cast<uint32_t>(queue.top() >> 32);
    const uint32_t best_left = static_cast<uint32_t>(queue.top());
    queue.pop();
    Node& left = nodes[best_left];
    // A pair has one rank, so a candidate is stale exactly when its place now has another one.
    if (left.id == kGone || rank_at(best_left) != best_rank) continue;
    Node& right = nodes[left.next];
    left.id = products_[best_rank];
    right.id = kGone;
    left.next = right.next;
    if (left.next != end) nodes[left.next].previous = best_left;
    push(left.previous);
    push(best_left);
  }
  for (uint32_t i = 0; i != end; i = nodes[i].next) out.push_back(nodes[i].id);
}

}  // namespace headrace
