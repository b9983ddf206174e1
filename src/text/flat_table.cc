#include "text/flat_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace headrace {
namespace {

// Eight bytes a round, multiply and fold: token texts are 6 bytes on average.
uint32_t hash_text(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;
  uint64_t state = text.size() * kMultiplier;
  const auto mix = [&](uint64_t word) {
    const auto product = static_cast<unsigned __int128>(state ^ word) * 0xD6E8FEB86659FD93ull;
    state = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  while (text.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, text.data(), 8);
    mix(word);
    text.remove_prefix(8);
  }
  uint64_t tail = 0;
  if (!text.empty()) std::memcpy(&tail, text.data(), text.size());
  mix(tail + kMultiplier);
  return static_cast<uint32_t>(state ^ state >> 32);
}

size_t slot_count_for(size_t entries) { return std::bit_ceil(entries * 2 + 1); }

}  // namespace

TokenTable::TokenTable(const std::vector<std::string_view>& tokens)
    : tokens_(&tokens), slots_(slot_count_for(tokens.size()), Slot{0, -1}) {
  const size_t mask = slots_.size() - 1;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const uint32_t hash = hash_text(tokens[id]);
    text_bytes_max_ = std::max(text_bytes_max_, tokens[id].size());
    size_t at = hash & mask;
    while (slots_[at].id >= 0) {
      const Slot& slot = slots_[at];
      if (slot.hash == hash && tokens[static_cast<size_t>(slot.id)] == tokens[id]) break;
      at = (at + 1) & mask;
    }
    if (slots_[at].id < 0) slots_[at] = {hash, static_cast<int32_t>(id)};
  }
}

int32_t TokenTable::find(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  const uint32_t hash = hash_text(text);
  for (size_t at = hash & mask; slots_[at].id >= 0; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && (*tokens_)[static_cast<size_t>(slot.id)] == text) return slot.id;
  }
  return -1;
}

PairTable::PairTable(size_t capacity)
    : mask_(slot_count_for(capacity) - 1), room_(capacity), slots_(mask_ + 1, Slot{0, 0, kNone}) {}

bool PairTable::insert(uint32_t left, uint32_t right, uint32_t value) {
  CHECK(value != kNone);
  size_t at = home(left, right);
  while (slots_[at].value != kNone) {
    if (slots_[at].left == left && slots_[at].right == right) return false;
    at = (at + 1) & mask_;
  }
  CHECK(room_ > 0);
  --room_;
  slots_[at] = {left, right, value};
  return true;
}

}  // namespace headrace
