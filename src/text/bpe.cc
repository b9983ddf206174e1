#include "text/bpe.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "text/byte_level.h"
#include "text/merge_symbols.h"
#include "text/utf8.h"

namespace headrace {
namespace {

constexpr size_t kMergeBatch = 32;

using MergeText = std::pair<std::string_view, std::string_view>;

// Both empty where the rule is not "left right".
MergeText split_merge(std::string_view merge) {
  const size_t space = merge.find(' ', 1);
  if (space == merge.npos || space + 1 == merge.size()) return {};
  return {merge.substr(0, space), merge.substr(space + 1)};
}

// The id of left + right. Merges come in the order in which they made tokens, so the id after the
// last product is nearly always right: one comparison instead of a hash of the joined text.
TokenId find_product(const Vocab& vocab, const TokenTable& table, MergeText merge, TokenId guess) {
  const auto [left, right] = merge;
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

// The symbols of one piece: on the stack for nearly all.
class BpeMerges::Symbols {
 public:
  void push(TokenId id) {
    if (count_ < few_.size()) {
      few_[count_] = id;
    } else {
      if (many_.empty()) many_.assign(few_.begin(), few_.end());
      many_.push_back(id);
    }
    ++count_;
  }
  std::span<const TokenId> all() const {
    return {many_.empty() ? few_.data() : many_.data(), count_};
  }

 private:
  std::array<TokenId, kShortPiece> few_;
  std::vector<TokenId> many_;
  size_t count_ = 0;
};

Result<std::unique_ptr<TokenModel>> BpeMerges::create(const Vocab& vocab,
                                                      const TokenModelOptions& options) {
  std::unique_ptr<BpeMerges> merges(new BpeMerges(vocab, options));
  HR_RETURN_IF_ERROR(merges->read_merges());
  return std::unique_ptr<TokenModel>(std::move(merges));
}

BpeMerges::BpeMerges(const Vocab& vocab, const TokenModelOptions& options)
    : vocab_(vocab),
      options_(options),
      table_(vocab.tokens),
      byte_tokens_(vocab),
      ranks_(vocab.merge_count()) {
  std::string letter;
  for (int byte = 0; byte < 256; ++byte) {
    letter.clear();
    append_utf8(byte_to_letter(static_cast<uint8_t>(byte)), letter);
    byte_ids_[static_cast<size_t>(byte)] = usable(table_.find(letter));
  }
}

Status BpeMerges::read_merges() {
  products_.reserve(vocab_.merge_count());
  TokenId guess = -1;
  for (size_t begin = 0; begin < vocab_.merge_count(); begin += kMergeBatch) {
    HR_RETURN_IF_ERROR(read_merge_batch(begin, guess));
  }
  return ok_status();
}

// Rules [begin, begin + kMergeBatch), a few at a time so that their look-ups wait for memory
// together. `guess`: the product of the next rule, most likely.
Status BpeMerges::read_merge_batch(size_t begin, TokenId& guess) {
  const size_t count = std::min(kMergeBatch, vocab_.merge_count() - begin);
  std::array<std::string_view, 2 * kMergeBatch> texts;
  std::array<TokenId, 2 * kMergeBatch> ids;
  for (size_t i = 0; i < count; ++i) {
    const MergeText merge = vocab_.merges.empty() ? vocab_.merge_pairs[begin + i]
                                                  : split_merge(vocab_.merges[begin + i]);
    std::tie(texts[2 * i], texts[2 * i + 1]) = merge;
  }
  table_.find_all(std::span(texts).first(2 * count), std::span(ids).first(2 * count));
  for (size_t i = 0; i < count; ++i) {
    ranks_.prefetch(static_cast<uint32_t>(ids[2 * i]), static_cast<uint32_t>(ids[2 * i + 1]));
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t rank = begin + i;
    const MergeText merge{texts[2 * i], texts[2 * i + 1]};
    if (merge.first.empty() || merge.second.empty()) {
      return bad_merge(rank, "is not two tokens with a space between");
    }
    const TokenId left = ids[2 * i], right = ids[2 * i + 1];
    if (left < 0 || right < 0) return bad_merge(rank, "joins a text that is no token");
    const TokenId product = find_product(vocab_, table_, merge, guess);
    if (product < 0) return bad_merge(rank, "makes a text that is no token");
    guess = product + 1;
    products_.push_back(product);
    if (usable(product) < 0) continue;  // text never becomes a control token
    ranks_.insert(static_cast<uint32_t>(left), static_cast<uint32_t>(right),
                  static_cast<uint32_t>(rank));
  }
  return ok_status();
}

// `id`, or -1 where text must not become it.
TokenId BpeMerges::usable(TokenId id) const {
  return id >= 0 && vocab_.kind(id) != TokenKind::kControl ? id : -1;
}

bool BpeMerges::has_byte(uint8_t byte) const {
  return (options_.kind == TokenModelKind::kByteBpe ? byte_ids_[byte] : byte_tokens_.id(byte)) >= 0;
}

void BpeMerges::encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (options_.ignore_merges) {
    const TokenId whole = find_whole(piece);
    if (whole >= 0) return out.push_back(whole);
  }
  Symbols symbols;
  if (options_.kind == TokenModelKind::kByteBpe) {
    bytes_to_symbols(piece, symbols);
  } else {
    characters_to_symbols(piece, symbols);
  }
  const auto join = [this](TokenId left, TokenId right) {
    const uint32_t rank = ranks_.find(static_cast<uint32_t>(left), static_cast<uint32_t>(right));
    return PairMerge<TokenId>{rank, rank == PairTable::kNone ? -1 : products_[rank]};
  };
  merge_symbols(symbols.all(), join, [&](TokenId id) { out.push_back(id); });
}

TokenId BpeMerges::find_whole(std::string_view piece) const {
  if (piece.size() > table_.text_bytes_max()) return -1;
  if (options_.kind != TokenModelKind::kByteBpe) return usable(table_.find(piece));
  return usable(table_.find(spell_bytes(piece)));
}

void BpeMerges::bytes_to_symbols(std::string_view piece, Symbols& symbols) const {
  bool after_unknown = false;
  for (const char byte : piece) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id >= 0) symbols.push(id);
    if (id < 0) push_unknown(after_unknown, symbols);
    after_unknown = id < 0;
  }
}

void BpeMerges::push_unknown(bool after_unknown, Symbols& symbols) const {
  const bool fused = after_unknown && options_.fuse_unk;
  if (options_.use_unk && !fused && vocab_.unk >= 0) symbols.push(vocab_.unk);
}

void BpeMerges::characters_to_symbols(std::string_view piece, Symbols& symbols) const {
  bool after_unknown = false;
  while (!piece.empty()) {
    const std::string_view character = piece.substr(0, utf8_step(piece).length);
    piece.remove_prefix(character.size());
    const TokenId id = usable(table_.find(character));
    const bool spelled = id < 0 && options_.byte_fallback && byte_tokens_.has_all(character);
    const bool unknown = id < 0 && !spelled;
    if (id >= 0) symbols.push(id);
    if (spelled) {
      for (const char byte : character) symbols.push(byte_tokens_.id(static_cast<uint8_t>(byte)));
    }
    if (unknown) push_unknown(after_unknown, symbols);
    after_unknown = unknown;
  }
}

}  // namespace headrace
