// KvStorage: the memory of the KV pool. Pages are block-major, so that one copy moves a block:
//   [block][layer of the group][K part, V part]   (parts as in ops/kv_view.h)
// All groups share one pool of equal pages; a page is as large as the largest group needs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/kv_tiers.h"
#include "kv/kv_group.h"
#include "models/model.h"
#include "ops/kv_view.h"
#include "sched/step_plan.h"
#include "tensor/device.h"

namespace headrace {

// Groups of a model's layers: one for full attention, one for each window size.
struct KvPlan {
  DType dtype = DType::kF16;
  int32_t block_tokens = 16;
  int64_t page_bytes = 0;
  std::vector<KvGroupSpec> groups;
  std::vector<int32_t> layer_group;   // [layers] index into groups
  std::vector<int64_t> layer_offset;  // [layers] bytes from a page's start to the layer's K part
  int64_t bytes_per_token() const;    // of one token in every group
};
KvPlan plan_kv(const ModelSpec& spec, DType dtype, int32_t block_tokens);
KeyLayout key_layout(DeviceKind device);  // as the device's attention kernels want keys

class KvStorage {
 public:
  static Result<KvStorage> create(Device& device, const ModelSpec& spec, KvPlan plan,
                                  int32_t block_count);

  std::span<const KvLayerView> layers() const { return layers_; }  // [layers]
  const KvPlan& plan() const { return plan_; }
  void copy_pages(Stream& stream, std::span<const BlockCopy> copies);
  // Tiers below the pool (none at first); move_pages() copies between them and it, in order.
  void set_tiers(std::shared_ptr<KvTiers> tiers) { tiers_ = std::move(tiers); }
  void move_pages(Stream& stream, const std::vector<PageMove>& moves) {
    if (!moves.empty()) tiers_->move_pages(stream, pool_.data(), moves);
  }

 private:
  KvStorage(KvPlan plan, Buffer pool) : plan_(std::move(plan)), pool_(std::move(pool)) {}

  KvPlan plan_;
  Buffer pool_;
  std::shared_ptr<KvTiers> tiers_;
  std::vector<KvLayerView> layers_;
};

}  // namespace headrace
