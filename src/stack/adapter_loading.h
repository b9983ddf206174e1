// Adapters of a model that generates: how many there may be, how large, and the bank that requests
// choose from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/named.h"
#include "engine/adapter_bank.h"
#include "models/lora_slots.h"
#include "models/model.h"
#include "tensor/device.h"
#include "weights/hf_names.h"

namespace headrace {

struct AdapterOptions {
  bool enabled = false;  // adapters may come while the server runs
  std::vector<AdapterSpec> at_start;
  std::optional<AdapterSpec> of_all;  // of requests that name the model itself (llama.cpp's --lora)
  int32_t count_max = 16;             // in memory
  int32_t rank_max = 64;
  int32_t dummies = 0;  // random ones, for measurements, of this rank
  int32_t dummy_rank = 16;
  // CPU: F16 or F32; empty: F32 where all is computed so, else F16. GPU: the type of activations.
  std::optional<DType> dtype;

  bool wanted() const { return enabled || !at_start.empty() || of_all.has_value() || dummies > 0; }
};

// What --lora-dtype may be.
inline constexpr Named<std::optional<DType>> kLoraTypes[] = {
    {"auto", std::nullopt}, {"float16", DType::kF16}, {"float32", DType::kF32}};

// The model that adapters are for.
struct AdaptedModel {
  Device& device;
  const Model& model;
  HfTensorNames names;
  bool rows_interleaved = false;          // LoraLoadOptions
  bool in_gguf = false;                   // its files
  DType dtype = DType::kF16;              // of adapters, where the options name none
  std::shared_ptr<LoraSlots> slots = {};  // GPU
};

// kUnsupported, naming the flag, where such a start cannot have adapters.
Status check_adapters(const AdapterOptions& options, int32_t ranks);

// The most adapters in memory: where none may come later, those of the start.
int32_t adapters_max(const AdapterOptions& options);

// On a GPU, before all that follows: where adapters lie. Where none may come later, as many slots
// and as large ones as those of the start need. Errors name the flag.
Result<std::shared_ptr<LoraSlots>> make_adapter_slots(const AdapterOptions& options,
                                                      const AdaptedModel& model);

// With those of the start. All outlive it.
Result<std::unique_ptr<AdapterBank>> make_adapter_bank(const AdapterOptions& options,
                                                       const AdaptedModel& model);
// What is loaded, and what may be.
std::string adapter_plan_line(const AdapterOptions& options, const AdaptedModel& model,
                              const AdapterBank& bank);

}  // namespace headrace
