#include "engine/kv_storage.h"

#include <algorithm>

namespace headrace {

KeyLayout key_layout(DeviceKind device) {
  return device == DeviceKind::kCuda ? KeyLayout::kRows : KeyLayout::kTransposed;
}

KvStorage KvStorage::create(Device& device, const ModelSpec& spec, KvPlan plan,
                            std::unique_ptr<KvMemory> memory) {
  KvStorage storage(std::move(plan), std::move(memory));
  for (int32_t layer = 0; layer < spec.layer_count; ++layer) {
    const auto index = static_cast<size_t>(layer);
    const KvPlan& of = storage.plan_;
    KvLayerView kv =
        kv_view(spec.kv[index], of.formats, key_layout(device.kind()), of.block_tokens);
    kv.base = storage.memory_->base() + of.layer_offset[index];
    kv.block_stride = of.page_bytes;
    storage.layers_.push_back(kv);
  }
  return storage;
}

Status KvStorage::add_unpacked(Device& device, int64_t page_count) {
  const int64_t page_bytes = plan_.unpacked_page_bytes();
  if (page_bytes == 0) return ok_status();
  HR_ASSIGN_OR_RETURN(unpacked_, device.allocate(page_count * page_bytes));
  for (KvLayerView& layer : layers_) {
    if (alike_in_columns(layer)) layer.unpacked = unpacked_.data();
  }
  return ok_status();
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
