// A low-rank adapter in memory, for one model: what it adds to each of the model's products, in the
// order of their rows.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/adapter.h"
#include "models/layer_tensors.h"
#include "ops/linear/lora_linear.h"
#include "tensor/device.h"
#include "weights/lora_file.h"

namespace headrace {

class LoraAdapter final : public Adapter {
 public:
  uint64_t key() const override { return key_; }
  int64_t bytes() const override { return memory_.size(); }
  int32_t rank() const override { return rank_; }
  // Of the product LinearLayer::site; empty: the adapter leaves it alone.
  std::span<const LoraFactor> factors(int32_t site) const {
    return factors_[static_cast<size_t>(site)];
  }

 private:
  friend class LoraLoader;

  uint64_t key_ = 0;
  int32_t rank_ = 0;
  Buffer memory_;
  std::vector<std::vector<LoraFactor>> factors_;  // [sites]
};

struct LoraLoadOptions {
  int32_t rank_max = 64;
  DType dtype = DType::kF16;  // or F32
  double scale = 1.0;         // times that of the file
  // The model's q and k rows are those of a GGUF file in the order of interleaved rotation, which
  // its `sites` turn round (ModelConfig::qk_rows_interleaved).
  bool rows_interleaved = false;
};

// `sites`: Model::adapter_sites(). Errors name the adapter and its module: another shape than the
// model's matrix, a matrix that takes no adapter, a rank over the most, a number that is none.
// `device` is a CPU and outlives the adapter. Any thread.
Result<std::shared_ptr<const LoraAdapter>> load_lora_adapter(const LoraFile& file,
                                                             std::span<const MatrixStack> sites,
                                                             Device& device,
                                                             const LoraLoadOptions& options);

// Of the workspace, what lora_linear takes at most for `rows` rows.
int64_t lora_workspace_bytes(std::span<const MatrixStack> sites, int64_t rows, int32_t rank_max);

// The most that an adapter of this rank takes: bytes.
int64_t lora_bytes_max(std::span<const MatrixStack> sites, int32_t rank, DType dtype);

}  // namespace headrace
