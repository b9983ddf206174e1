// A low-rank adapter in memory, for one model: what it adds to each of the model's products, in the
// order of their rows.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/adapter.h"
#include "models/layer_tensors.h"
#include "models/lora_slots.h"
#include "ops/linear/lora_linear.h"
#include "tensor/device.h"
#include "weights/lora_file.h"

namespace headrace {

class LoraAdapter final : public Adapter {
 public:
  LoraAdapter() = default;
  LoraAdapter(const LoraAdapter&) = delete;
  LoraAdapter& operator=(const LoraAdapter&) = delete;
  ~LoraAdapter() override {
    if (slots_ != nullptr) slots_->give_back(slot_);
  }

  uint64_t key() const override { return key_; }
  int64_t bytes() const override { return bytes_; }
  int32_t rank() const override { return rank_; }
  // Of a GPU: where it lies; -1: on a CPU.
  int32_t slot() const { return slot_; }
  // CPU: of the product LinearLayer::site; empty: the adapter leaves it alone.
  std::span<const LoraFactor> factors(int32_t site) const {
    return factors_[static_cast<size_t>(site)];
  }

 private:
  friend class LoraLoader;

  uint64_t key_ = 0;
  int32_t rank_ = 0;
  int64_t bytes_ = 0;
  Buffer memory_;                                 // CPU
  std::vector<std::vector<LoraFactor>> factors_;  // CPU: [sites]
  std::shared_ptr<LoraSlots> slots_;              // GPU; or null
  int32_t slot_ = -1;
};

struct LoraLoadOptions {
  int32_t rank_max = 64;
  DType dtype = DType::kF16;  // CPU: or F32; GPU: that of the slots
  double scale = 1.0;         // times that of the file
  // The model's q and k rows are those of a GGUF file in the order of interleaved rotation, which
  // its `sites` turn round (ModelConfig::qk_rows_interleaved).
  bool rows_interleaved = false;
  std::shared_ptr<LoraSlots> slots = {};  // GPU: one of them is taken
};

// `sites`: Model::adapter_sites(). Errors name the adapter and its module: another shape than the
// model's matrix, a matrix that takes no adapter, a rank over the most, a number that is none.
// `device` outlives the adapter. Any thread: of a GPU the adapter is all there when this returns,
// beside steps that run. kExhausted: there is no slot.
Result<std::shared_ptr<const LoraAdapter>> load_lora_adapter(const LoraFile& file,
                                                             std::span<const MatrixStack> sites,
                                                             Device& device,
                                                             const LoraLoadOptions& options);

// Of the workspace, what lora_linear takes at most for `rows` rows.
int64_t lora_workspace_bytes(std::span<const MatrixStack> sites, int64_t rows, int32_t rank_max);

// The most that an adapter of this rank takes: bytes.
int64_t lora_bytes_max(std::span<const MatrixStack> sites, int32_t rank, DType dtype);

}  // namespace headrace
