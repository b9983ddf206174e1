#include "engine/kv_poison.h"

#include <algorithm>
#include <cstddef>

namespace headrace {
namespace {

// Neighbouring bytes as one piece.
class Pieces {
 public:
  Pieces(Stream& stream, const Poison& poison) : stream_(stream), poison_(poison) {}
  ~Pieces() { end(); }

  void add(std::byte* at, int64_t bytes) {
    std::byte* const end_of_piece = piece_.data() + piece_.size();
    if (at < piece_.data() || at > end_of_piece) {
      end();
      piece_ = {at, static_cast<size_t>(bytes)};
    } else {  // two numbers of 4 bits are one byte
      const auto size = static_cast<size_t>(at + bytes - piece_.data());
      piece_ = {piece_.data(), std::max(piece_.size(), size)};
    }
  }

 private:
  void end() {
    if (!piece_.empty()) poison_.fill(stream_, piece_);
    piece_ = {};
  }

  Stream& stream_;
  const Poison& poison_;
  std::span<std::byte> piece_;
};

// Numbers and scales of one head of a token.
void add_head(Pieces& pieces, const KvHeadView& head, int64_t token) {
  const int64_t bytes = dtype_info(kv_element(head.format)).block_bytes;
  for (int32_t d = 0; d < head.dim; ++d) pieces.add(head.number(token, d), bytes);
  if (!has_scales(head.format)) return;
  for (int32_t d = 0; d < head.dim; d += kv_group(head.format, head.dim)) {
    pieces.add(reinterpret_cast<std::byte*>(head.scale(token, d)), sizeof(uint16_t));
  }
}

}  // namespace

Result<KvPoison> KvPoison::create(Device& device, Stream& stream, const KvStorage& storage,
                                  int64_t page_count) {
  CHECK_MSG(storage.pool() != nullptr, "keys and values are poisoned in pages");
  HR_ASSIGN_OR_RETURN(Poison poison, Poison::create(device, stream));
  const auto bytes = static_cast<size_t>(page_count * storage.plan().page_bytes);
  poison.fill(stream, {storage.pool(), bytes});
  return KvPoison(std::move(poison), storage);
}

void KvPoison::new_pages(Stream& stream, const StepPlan& plan) const {
  const int64_t bytes = storage_->plan().page_bytes;
  for (const Work& work : plan.work) {
    for (const GroupBlocks& group : work.new_blocks) {
      for (const BlockId page : group.blocks) {
        std::byte* const at = storage_->pool() + page.value * bytes;
        poison_.fill(stream, {at, static_cast<size_t>(bytes)});
      }
    }
  }
}

void KvPoison::rejected(Stream& stream, std::span<const LogitRow> rows, const StepResult& result,
                        const SlotTable& slots) const {
  size_t at = 0;         // of the result's rows
  int32_t proposed = 0;  // of the sequence
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].proposed >= 0) ++proposed;
    if (i + 1 < rows.size() && rows[i + 1].sequence == rows[i].sequence) continue;
    const auto accepted = static_cast<int32_t>(result.rows[at++].accepted.size());
    const auto known = static_cast<int32_t>(slots[rows[i].slot].tokens.size());
    tokens(stream, slots, rows[i].slot, known + std::max(0, accepted - 1),
           known + std::exchange(proposed, 0));
  }
}

void KvPoison::tokens(Stream& stream, const SlotTable& slots, SlotId slot, int32_t first,
                      int32_t last) const {
  const KvPlan& plan = storage_->plan();
  for (size_t layer = 0; layer < storage_->layers().size(); ++layer) {
    const KvLayerView& kv = storage_->layers()[layer];
    const auto table = slots.block_table(slot, plan.layer_group[layer]);
    for (int32_t token = first; token < last; ++token) {
      if ((token + 1) % kv.rate != 0) continue;  // the place of no key
      const int32_t page = table[static_cast<size_t>(token / plan.block_tokens)];
      const int64_t in_page = token % plan.block_tokens / kv.rate;
      Pieces pieces(stream, poison_);
      for (int32_t head = 0; head < kv.kv_heads; ++head) {
        add_head(pieces, k_head(kv, page, head), in_page);
        if (!kv.v_aliases_k) add_head(pieces, v_head(kv, page, head), in_page);
      }
      if (kv.index_dim > 0) add_head(pieces, index_head(kv, page), in_page);
      if (kv.source_dim == 0) continue;
      pieces.add(reinterpret_cast<std::byte*>(sources_of(kv, page, in_page)),
                 kv.source_dim * static_cast<int64_t>(sizeof(float)));
    }
  }
}

}  // namespace headrace
