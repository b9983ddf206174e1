// Ids as strong types: a SlotId cannot be passed where a BlockId is meant.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <span>

namespace headrace {

template <class Tag, class Rep>
struct StrongId {
  Rep value{};
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

using RequestId =
    StrongId<struct RequestTag, uint64_t>;  // unique in a process, never a client's text
using SequenceId = StrongId<struct SequenceTag, uint64_t>;     // one choice of a request
using SlotId = StrongId<struct SlotTag, int32_t>;              // row of the SlotTable, reused
using BlockId = StrongId<struct BlockTag, int32_t>;            // page of the KV pool; -1 = none
using CheckpointId = StrongId<struct CheckpointTag, int32_t>;  // saved state of a sequence
using Ticket = StrongId<struct TicketTag, uint64_t>;           // a submitted step, increasing

// Tokens are plain integers: they index vocabularies and cross every seam as spans.
using TokenId = int32_t;
using TokenSpan = std::span<const TokenId>;

}  // namespace headrace

template <class Tag, class Rep>
struct std::hash<headrace::StrongId<Tag, Rep>> {
  size_t operator()(headrace::StrongId<Tag, Rep> id) const { return std::hash<Rep>()(id.value); }
};
