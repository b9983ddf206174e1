#include "text/flat_table.h"

#include <algorithm>
#include <array>
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

// At most three quarters full, and never all of them.
size_t slot_count_for(size_t entries) { return entries + entries / 3 + 1; }

// How many look-ups wait for memory together.
constexpr size_t kBatch = 32;

}  // namespace

TokenTable::TokenTable(const std::vector<std::string_view>& tokens)
    : tokens_(&tokens), slots_(slot_count_for(tokens.size()), Slot{0, -1}) {
  std::array<uint32_t, kBatch> hashes;
  for (size_t begin = 0; begin < tokens.size(); begin += kBatch) {
    const size_t count = std::min(kBatch, tokens.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = hash_text(tokens[begin + i]);
      __builtin_prefetch(&slots_[home(hashes[i])]);
      text_bytes_max_ = std::max(text_bytes_max_, tokens[begin + i].size());
    }
    for (size_t i = 0; i < count; ++i) {
      size_t at = home(hashes[i]);
      while (slots_[at].id >= 0) {
        const Slot& slot = slots_[at];
        const bool same =
            slot.hash == hashes[i] && tokens[static_cast<size_t>(slot.id)] == tokens[begin + i];
        if (same) break;
        at = next_slot(at, slots_.size());
      }
      if (slots_[at].id < 0) slots_[at] = {hashes[i], static_cast<int32_t>(begin + i)};
    }
  }
}

int32_t TokenTable::find(std::string_view text) const { return find_hashed(text, hash_text(text)); }

int32_t TokenTable::find_hashed(std::string_view text, uint32_t hash) const {
  for (size_t at = home(hash); slots_[at].id >= 0; at = next_slot(at, slots_.size())) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && (*tokens_)[static_cast<size_t>(slot.id)] == text) return slot.id;
  }
  return -1;
}

void TokenTable::find_all(std::span<const std::string_view> texts, std::span<int32_t> ids) const {
  CHECK(texts.size() == ids.size());
  std::array<uint32_t, kBatch> hashes;
  for (size_t begin = 0; begin < texts.size(); begin += kBatch) {
    const size_t count = std::min(kBatch, texts.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = hash_text(texts[begin + i]);
      __builtin_prefetch(&slots_[home(hashes[i])]);
    }
    // What the first slot names is nearly always the token: its view, then its text.
    for (size_t i = 0; i < count; ++i) {
      const int32_t id = slots_[home(hashes[i])].id;
      if (id >= 0) __builtin_prefetch(&(*tokens_)[static_cast<size_t>(id)]);
    }
    for (size_t i = 0; i < count; ++i) {
      const int32_t id = slots_[home(hashes[i])].id;
      if (id >= 0) __builtin_prefetch((*tokens_)[static_cast<size_t>(id)].data());
    }
    for (size_t i = 0; i < count; ++i) {
      ids[begin + i] = find_hashed(texts[begin + i], hashes[i]);
    }
  }
}

PairTable::PairTable(size_t capacity)
    : room_(capacity), slots_(slot_count_for(capacity), Slot{0, 0, kNone}) {}

bool PairTable::insert(uint32_t left, uint32_t right, uint32_t value) {
  CHECK(value != kNone);
  size_t at = home(left, right);
  while (slots_[at].value != kNone) {
    if (slots_[at].left == left && slots_[at].right == right) return false;
    at = next_slot(at, slots_.size());
  }
  CHECK(room_ > 0);
  --room_;
  slots_[at] = {left, right, value};
  return true;
}

}  // namespace headrace
