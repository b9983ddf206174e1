// DraftFeatures: what a draft head reads of a model. Each step leaves the hidden rows of all its
// tokens at taps; what the head makes of them is kept in the sequences' pages, as keys and values
// of layers that nobody attends to (with_rows(), kv_plan.h). So a head computes a token when it
// first needs it, as a draft model does, and prefixes that are found, copies and preemptions bring
// the rows along. CPU.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/draft_head.h"
#include "engine/kv_storage.h"
#include "engine/slot_table.h"
#include "models/layer_tap.h"
#include "models/model.h"
#include "tensor/device.h"

namespace headrace {

class DraftFeatures {
 public:
  struct Source {
    const Model& model;           // whose rows are read
    const Model* head = nullptr;  // which makes features of them; null: they are these
    const DraftHead& spec;
  };
  // Numbers of a feature.
  static int64_t width(const Source& source) {
    return (source.head == nullptr ? source.model : *source.head).spec().hidden_size;
  }
  static int64_t bytes(const Source& source, int32_t tokens_max);
  // All outlive it. `layers`: of the storage, those that keep features. Steps have `tokens_max`
  // tokens at most.
  static Result<DraftFeatures> create(Device& device, const Source& source,
                                      const KvStorage& storage, LayerRange layers,
                                      int32_t tokens_max);

  LayerTaps taps() const { return taps_; }  // of each step
  // Keeps what the step left at the taps. REQUIRES: this plan's work was computed, all of its rows
  void keep(OpContext& context, const StepPlan& plan, const SlotTable& slots);
  // Features of tokens [first, first + rows) of the slot's sequence, which steps have computed.
  void read(const SlotTable& slots, SlotId slot, int32_t first, const TensorView& rows) const;

 private:
  DraftFeatures(const Source& source, const KvStorage& storage, LayerRange layers);
  TensorView make(OpContext& context, int64_t rows);
  // A token of a slot's sequence.
  struct FeaturePlace {
    SlotId slot;
    int32_t token = 0;
  };
  int64_t cache_slot(const SlotTable& slots, FeaturePlace place, size_t layer) const;
  void store_row(const SlotTable& slots, FeaturePlace place, const float* row) const;
  void load_row(const SlotTable& slots, FeaturePlace place, float* row) const;

  const Source source_;
  const KvStorage& storage_;
  std::span<const KvLayerView> kv_;  // of the layers that keep features
  std::span<const int32_t> groups_;  // that these are in
  std::vector<Buffer> buffers_;
  std::vector<LayerTap> taps_;  // [T, D] each
  TensorView joined_;           // [T, layers x D]; of one layer its tap
  TensorView made_;             // [T, width]
};

}  // namespace headrace
