// KvStorage: the memory of the KV pool. Pages are block-major, so that one copy moves a block:
//   [block][layer of the group][K part, V part]   (parts as in ops/attention/kv_view.h)
// All groups share one pool of equal pages (kv_plan.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/kv_memory.h"
#include "engine/kv_plan.h"
#include "engine/kv_tiers.h"
#include "models/model.h"
#include "ops/attention/kv_view.h"
#include "sched/step_plan.h"
#include "tensor/device.h"

namespace headrace {

KeyLayout key_layout(DeviceKind device);  // as the device's attention kernels want keys

class KvStorage {
 public:
  // `memory` has pages of the plan's size.
  static KvStorage create(Device& device, const ModelSpec& spec, KvPlan plan,
                          std::unique_ptr<KvMemory> memory);

  // Gives layers of numbers in columns the memory in which their pages are unpacked, `page_count`
  // of them (KvPlan::unpacked_page_bytes()); nothing where there is none. kExhausted.
  Status add_unpacked(Device& device, int64_t page_count);

  std::span<const KvLayerView> layers() const { return layers_; }  // [layers]
  const KvPlan& plan() const { return plan_; }
  // Page 0 of pages side by side; null: there are none (kv_memory.h).
  std::byte* pool() const { return memory_->pool(); }
  // The plan with block tables as kernels see them (kv_memory.h).
  Result<const StepPlan*> map(const StepPlan& plan, Stream& stream) {
    return memory_->map(plan, stream);
  }
  void copy_pages(Stream& stream, std::span<const BlockCopy> copies) {
    memory_->copy_pages(stream, copies);
  }
  // The first cache slot of the page that rows of padding write.
  int64_t padding_slot() const { return int64_t{memory_->padding_entry()} * plan_.block_tokens; }
  // The tiers below the pool; there are none at first. move_pages() copies pages between the tiers
  // and the pool, in the order of the moves.
  // REQUIRES: their pages are as large
  void set_tiers(std::shared_ptr<KvTiers> tiers) {
    CHECK(tiers->page_bytes() == plan_.page_bytes);
    tiers_ = std::move(tiers);
  }
  void move_pages(Stream& stream, const std::vector<PageMove>& moves) {
    if (!moves.empty()) tiers_->move_pages(stream, memory_->pool(), moves);
  }
  // Each copies one page in stream order and waits for it.
  Status read_page(Stream& stream, TierPage from, std::span<std::byte> to);
  Status write_page(Stream& stream, std::span<const std::byte> from, BlockId to);
  KvMemoryStats memory_stats() const { return memory_->stats(); }

 private:
  KvStorage(KvPlan plan, std::unique_ptr<KvMemory> memory)
      : plan_(std::move(plan)), memory_(std::move(memory)) {}

  KvPlan plan_;
  std::unique_ptr<KvMemory> memory_;
  std::shared_ptr<KvTiers> tiers_;
  std::vector<KvLayerView> layers_;
  Buffer unpacked_;
};

}  // namespace headrace
