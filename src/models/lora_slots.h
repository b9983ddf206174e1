// LoraSlots: where adapters lie in a GPU's memory, which is planned at the start: so many slots of
// one size, each with room for an adapter of the largest rank over every matrix that takes one.
// Kernels name an adapter by its slot, so that recorded steps run with others than those that were
// there when they were recorded.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "models/layer_tensors.h"
#include "ops/linear/lora_slot.h"
#include "tensor/device.h"

namespace headrace {

class LoraSlots {
 public:
  struct Sizes {
    int32_t count = 0;
    int32_t rank_max = 0;
  };
  // `sites`: Model::adapter_sites(); `dtype`: Model::activation_dtype(). The device outlives it.
  static Result<std::shared_ptr<LoraSlots>> create(Device& device,
                                                   std::span<const MatrixStack> sites, Sizes sizes,
                                                   DType dtype);
  // Of device memory.
  static int64_t bytes(std::span<const MatrixStack> sites, Sizes sizes, DType dtype);

  Sizes sizes() const { return sizes_; }
  int64_t bytes() const { return memory_.size() + scales_.size(); }
  const LoraSlotsView& view() const { return view_; }
  // The factors of the product LinearLayer::site.
  std::span<const LoraPlace> places(int32_t site) const {
    return places_[static_cast<size_t>(site)];
  }

  // Any thread. A slot that nobody has; kExhausted: there is none. Whoever gives one back has seen
  // the last step end that read it, so that it may be filled at once.
  Result<int32_t> take();
  void give_back(int32_t slot);
  // Where a slot begins, and where its scales do, [factors of all sites].
  std::byte* memory(int32_t slot) const { return memory_.data() + slot * view_.slot_bytes; }
  std::byte* scales(int32_t slot) const { return scales_.data() + slot * scale_bytes(); }
  int64_t scale_bytes() const {
    return view_.factor_count * static_cast<int64_t>(sizeof(LoraScale));
  }

 private:
  LoraSlots() = default;

  Sizes sizes_;
  std::vector<std::vector<LoraPlace>> places_;  // [sites]
  Buffer memory_, scales_;
  LoraSlotsView view_;
  std::mutex mutex_;
  std::condition_variable given_back_;
  std::vector<int32_t> free_;
};

// Of the workspace, what lora_linear takes at most for `rows` rows on a GPU.
int64_t lora_slots_workspace_bytes(std::span<const MatrixStack> sites, int64_t rows,
                                   LoraSlots::Sizes sizes);

}  // namespace headrace
