// DraftFeatures: what a draft head reads of a model. Each step leaves the hidden rows of all its
// tokens at taps; what the head makes of them is kept in the sequences' pages, as keys and values
// of layers that nobody attends to (with_rows(), kv_plan.h). So a head computes a token when it
// first needs it, as a draft model does, and prefixes that are found, copies and preemptions bring
// the rows along.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/draft_head.h"
#include "engine/kv_storage.h"
#include "engine/step_stages.h"
#include "models/layer_tap.h"
#include "models/model.h"
#include "ops/attention/page_rows.h"
#include "tensor/device.h"

namespace headrace {

// Where the tokens of a batch lie in the pages of each group: [groups][T], on the device.
using TokenPlaces = std::vector<std::span<const int64_t>>;
TokenPlaces places_of(const ForwardBatch& batch);
TokenPlaces places_of(const StepInput& input);

class DraftFeatures {
 public:
  struct Source {
    const Model& model;           // whose rows are read
    const Model* head = nullptr;  // which makes features of them; null: they are these
    DraftHead spec;
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
  LayerRange layers() const { return layers_; }
  // Keeps what the step has left at the taps, of tokens that lie at `places`.
  void keep(OpContext& context, const TokenPlaces& places) const;
  // Features of tokens that steps have computed, in the order of `places`.
  void load(OpContext& context, const TokenPlaces& places, const TensorView& rows) const;

 private:
  DraftFeatures(const Source& source, const KvStorage& storage, LayerRange layers)
      : source_(source), storage_(storage), layers_(layers) {}
  TensorView make(OpContext& context, int64_t rows) const;
  void move(OpContext& context, PageRowsWay way, const TokenPlaces& places,
            const TensorView& rows) const;

  const Source source_;
  const KvStorage& storage_;
  const LayerRange layers_;  // of the storage, those that keep features
  std::vector<Buffer> buffers_;
  std::vector<LayerTap> taps_;  // [T, D] each
  TensorView joined_;           // [T, layers x D]; of one layer its tap
  TensorView made_;             // [T, width]
};

}  // namespace headrace
