#include "engine/kv_storage.h"

#include <algorithm>

namespace headrace {
namespace {

int64_t part_bytes(const LayerKv& kv, DType dtype, int32_t block_tokens) {
  return int64_t{block_tokens} * kv.kv_heads * kv.head_dim * dtype_info(dtype).block_bytes;
}

KvGroupSpec& group_of(KvPlan& plan, const LayerKv& kv) {
  const KvKind kind = kv.window > 0 ? KvKind::kSliding : KvKind::kFull;
  for (KvGroupSpec& group : plan.groups) {
    if (group.kind == kind && group.window == kv.window) return group;
  }
  plan.groups.push_back({.kind = kind, .window = kv.window, .block_tokens = plan.block_tokens});
  return plan.groups.back();
}

}  // namespace

int64_t KvPlan::bytes_per_token() const {
  int64_t bytes = 0;
  for (const KvGroupSpec& group : groups) bytes += group.block_bytes / group.block_tokens;
  return bytes;
}

KvPlan plan_kv(const ModelSpec& spec, DType dtype, int32_t block_tokens) {
  KvPlan plan{.dtype = dtype, .block_tokens = block_tokens};
  for (int32_t layer = 0; layer < spec.layer_count; ++layer) {
    const LayerKv& kv = spec.kv[static_cast<size_t>(layer)];
    KvGroupSpec& group = group_of(plan, kv);
    group.layers.push_back(layer);
    plan.layer_group.push_back(static_cast<int32_t>(&group - plan.groups.data()));
    plan.layer_offset.push_back(group.block_bytes);
    group.block_bytes += 2 * part_bytes(kv, dtype, block_tokens);
  }
  for (const KvGroupSpec& group : plan.groups) {
    plan.page_bytes = std::max(plan.page_bytes, group.block_bytes);
  }
  // Keys are read in whole cache lines: 64 bytes on the CPU, 128 on GPUs.
  plan.page_bytes = (plan.page_bytes + 127) & ~int64_t{127};
  return plan;
}

KeyLayout key_layout(DeviceKind device) {
  return device == DeviceKind::kCuda ? KeyLayout::kRows : KeyLayout::kTransposed;
}

KvStorage KvStorage::create(Device& device, const ModelSpec& spec, KvPlan plan,
                            std::unique_ptr<KvMemory> memory) {
  KvStorage storage(std::move(plan), std::move(memory));
  for (int32_t layer = 0; layer < spec.layer_count; ++layer) {
    const LayerKv& kv = spec.kv[static_cast<size_t>(layer)];
    storage.layers_.push_back(
        {.dtype = storage.plan_.dtype,
         .keys = key_layout(device.kind()),
         .base = storage.memory_->base() + storage.plan_.layer_offset[static_cast<size_t>(layer)],
         .block_stride = storage.plan_.page_bytes,
         .v_offset = part_bytes(kv, storage.plan_.dtype, storage.plan_.block_tokens),
         .block_tokens = storage.plan_.block_tokens,
         .kv_heads = kv.kv_heads,
         .head_dim = kv.head_dim});
  }
  return storage;
}

Status KvStorage::read_page(Stream& stream, TierPage from, std::span<std::byte> to) {
  if (from.tier == kPoolTier) {
    stream.copy_out(to.data(), memory_->pool() + from.page * plan_.page_bytes, plan_.page_bytes);
    return stream.synchronize();
  }
  HR_RETURN_IF_ERROR(stream.synchronize());
  const std::span<const std::byte> page = tiers_->page(from);
  std::copy(page.begin(), page.end(), to.begin());
  return ok_status();
}

Status KvStorage::write_page(Stream& stream, std::span<const std::byte> from, BlockId to) {
  stream.copy_in(memory_->pool() + to.value * plan_.page_bytes, from.data(), plan_.page_bytes);
  return stream.synchronize();
}

}  // namespace headrace
