// StepStages: what the two stages of a step start on a stream. A step that runs and a step that is
// recorded differ in the stream, the workspace and the places of their inputs, not in this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/device_sampler.h"
#include "engine/device_slots.h"
#include "engine/kv_storage.h"
#include "engine/state_storage.h"
#include "engine/step_arena.h"
#include "engine/token_masks.h"
#include "models/model.h"
#include "ops/attention/plan.h"
#include "ops/op.h"
#include "ops/sampling/device_sample.h"

namespace headrace {

// Rows of logits at a time: 256 rows of a 128,256-token vocabulary are 131 MB.
inline constexpr int32_t kDeviceLogitRowsMax = 256;
// How much a step has of what its arena holds.
struct StepCounts {
  size_t tokens = 0;
  size_t logit_rows = 0;
  size_t kept_rows = 0;   // of ForwardBatch::kept
  size_t biases = 0;      // of logits, of all rows
  size_t entries = 0;     // of block tables that change
  size_t marks = 0;       // of tokens that penalties count
  size_t lora_tasks = 0;  // of rows that have adapters
  size_t kept_lora_tasks = 0;
  // Of models that keep states.
  size_t state_sequences = 0;
  size_t state_saves = 0;

  // Of what requests ask for, as many as they like.
  int64_t request_bytes() const {
    return static_cast<int64_t>(biases * sizeof(DeviceLogitBias) + marks * sizeof(TokenMark));
  }
};

// Of a step that is padded to so many rows, whatever adapters these have, where some have one.
inline size_t padded_lora_tasks(size_t rows, int32_t adapter_slots) {
  return static_cast<size_t>(lora_tasks_max(static_cast<int64_t>(rows), adapter_slots));
}

// Where a step's inputs lie in its arena. What a recording reads comes first: where it lies depends
// on the numbers of rows alone.
struct StepParts {
  ArenaPart<TokenId> tokens;                          // [T]
  ArenaPart<int32_t> positions;                       // [T]
  std::vector<ArenaPart<int64_t>> slots;              // [groups][T]
  std::vector<ArenaPart<std::byte>> attention_plans;  // [groups]
  ArenaPart<DeviceStateSequence> state_sequences;     // [S]
  ArenaPart<StateCopy> state_saves;
  ArenaPart<LoraTask> lora_tasks;
  ArenaPart<int32_t> kept_rows;  // [K]
  ArenaPart<std::byte> kept_plan;
  ArenaPart<LoraTask> kept_lora_tasks;
  ArenaPart<int32_t> logit_rows;           // [R]
  ArenaPart<DeviceSampleRow> sample_rows;  // [R]
  ArenaPart<DeviceLogitBias> biases;       // a recording knows where they begin
  ArenaPart<BlockTableEntry> entries;
  ArenaPart<TokenMark> marks;

  static StepParts place(ArenaPlaces& places, std::span<const AttentionPlanShape> attention,
                         const StepCounts& counts);
};

// The inputs of a step as the device sees them.
struct StepInput {
  std::span<TokenId> tokens;
  std::span<int32_t> positions;
  std::vector<std::span<int64_t>> slots;       // [groups]
  std::vector<AttentionPlan> attention_plans;  // [groups], `device` set
  DeviceStates states;                         // of a sequence one row, where nothing else is said
  std::span<int32_t> kept_rows;
  AttentionPlan kept_plan;                          // of the rows kept
  bool keeps_rows = false;                          // false: the last layer computes all rows
  std::span<LoraTask> lora_tasks, kept_lora_tasks;  // none: no row has an adapter
  std::span<int32_t> logit_rows;
  DeviceSampleRow* sample_rows = nullptr;
  DeviceLogitBias* biases = nullptr;
  std::span<BlockTableEntry> entries;
  std::span<TokenMark> marks;
  DeviceSampleResult* results = nullptr;
  DeviceTopLogprob* tops = nullptr;

  // All inputs but results and tops, which do not lie in the arena. `attention_plans` are those
  // that plan_attention() returned.
  static StepInput in(const StepArena& arena, const StepParts& parts,
                      std::vector<AttentionPlan> attention_plans);
};

// Any thread may call it, with an OpContext of its own.
class StepStages {
 public:
  // All outlive this.
  struct Sources {
    const Model& model;
    const KvStorage& storage;
    const StateStorage& states;
    const DeviceSlots& slots;
    const TokenMasks& masks;
    const LoraSlots* adapters = nullptr;    // null: no row has one
    std::optional<LayerRange> layers = {};  // of a stage its own (StageSeat); none: all
    // Of a draft, whose layers lie behind those of the model that it proposes for in the storage.
    int32_t layer_first = 0;
    // The tokens that are sampled from: 0: the model's. Where it has fewer logits, their ids are
    // `logit_ids`, on the device; null: 0, 1, ...
    int32_t vocabulary = 0;
    const TokenId* logit_ids = nullptr;
    TensorView features = {};  // of a head: of the rows of a step, [T or more, D]
  };
  StepStages(const Sources& sources, LayerTaps taps)
      : sources_(sources), taps_(taps.begin(), taps.end()) {}

  LayerTaps taps() const { return taps_; }  // of steps of requests; padding has none
  // Whether the last layer is among its own; if not there is nothing to sample.
  bool samples() const { return layers().last == sources_.model.spec().layer_count; }
  // Computes `hidden` [T, D], which take_hidden() gave: from the tokens or, where the first layer
  // is another's, in place.
  void forward(OpContext& context, const StepInput& input, TensorView hidden, LayerTaps taps) const;
  // Computes the logits of the rows that are read and samples their tokens.
  void sample(OpContext& context, const StepInput& input, TensorView hidden) const;
  // The same without an outcome: logits are computed and left.
  void rehearse_sample(OpContext& context, const StepInput& input, TensorView hidden) const;

  TensorView take_hidden(Workspace& workspace, size_t rows) const;

 private:
  LayerRange layers() const {
    return sources_.layers.value_or(LayerRange{0, sources_.model.spec().layer_count});
  }

  enum class Outcome : uint8_t { kTokens, kNone };
  void score(OpContext& context, const StepInput& input, TensorView hidden, Outcome outcome) const;
  void score_rows(OpContext& context, const StepInput& input, TensorView hidden, int64_t first,
                  int64_t count, Outcome outcome) const;

  const Sources sources_;
  const std::vector<LayerTap> taps_;
};

}  // namespace headrace
