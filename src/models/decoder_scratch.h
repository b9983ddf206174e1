// The scratch memory of a pass over the layers of a Decoder: how wide its areas are, and where they
// lie in the workspace.
#pragma once

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "models/decoder_spec.h"
#include "models/decoder_weights.h"
#include "tensor/arena_places.h"

namespace headrace {

// Whether the parts of a layer share their scratch memory. They do on the CPU, where an op has
// ended before the next begins: a normalised input lies where the branch made of it will, a mixer's
// rows where the feed-forward's will, a part's results over what they are made of, and the
// feed-forward part takes a few rows at a time. For SmolLM2-135M that is 3 MiB at 256 rows instead
// of 7.
inline bool shares_scratch(const DeviceTraits& device) { return device.kind == DeviceKind::kCpu; }

// As many as share one unpacking of a panel of weights (ops/linear/cpu_plan.h).
inline constexpr int64_t kFeedForwardRows = 128;
// With AMX a product of few rows is bound by reading the weights.
inline constexpr int64_t kAmxFeedForwardRows = 512;

// Rows that a feed-forward part takes at a time.
inline int64_t feed_forward_rows(int64_t rows, const FeedForward& part,
                                 const DeviceTraits& device) {
  if (!shares_scratch(device)) return rows;
  const int64_t usual = device.cpu.amx_bf16 ? kAmxFeedForwardRows : kFeedForwardRows;
  return std::min(rows, part.rows_of_run(usual));
}

// The widest columns that any layer's parts ask for, area by area.
struct DecoderWidths {
  std::vector<int64_t> mixer = {};
  std::vector<int64_t> feed_forward = {};
  int64_t carried = 0;  // of frames, then of mixers
  int64_t frames = 0;   // of these
  // Where memory is shared, what runs of feed-forward parts take of it: those of unequal layers
  // differ in rows and columns.
  struct Run {
    int64_t rows_max = 0;
    int64_t columns = 0;  // of all areas
    friend bool operator==(const Run&, const Run&) = default;
  };
  std::vector<Run> runs = {};

  static DecoderWidths of(const DecoderWeights& weights, const DeviceTraits& device) {
    const std::span<const DecoderLayer> layers = weights.layers;
    DecoderWidths widths{.frames = weights.carried ? weights.carried->columns() : 0};
    const bool in_place = shares_scratch(device);
    for (const DecoderLayer& layer : layers) {
      widen(widths.mixer, layer.mixer->scratch_columns(in_place));
      widths.carried =
          std::max({widths.carried, widths.frames, widths.frames + layer.mixer->carried_columns()});
      const std::vector<int64_t> columns = layer.feed_forward->scratch_columns(in_place);
      widen(widths.feed_forward, columns);
      const Run run{
          feed_forward_rows(std::numeric_limits<int64_t>::max(), *layer.feed_forward, device),
          std::accumulate(columns.begin(), columns.end(), int64_t{0})};
      if (std::ranges::find(widths.runs, run) == widths.runs.end()) widths.runs.push_back(run);
    }
    return widths;
  }

  // Of the memory that a layer's parts share, over T rows.
  int64_t shared_elements(int64_t rows) const {
    int64_t most = rows * std::accumulate(mixer.begin(), mixer.end(), int64_t{0});
    for (const Run& run : runs) most = std::max(most, std::min(rows, run.rows_max) * run.columns);
    return most;
  }

 private:
  static void widen(std::vector<int64_t>& widest, const std::vector<int64_t>& columns) {
    CHECK(std::ssize(columns) <= kPartAreasMax);
    if (widest.size() < columns.size()) widest.resize(columns.size());
    for (size_t i = 0; i < columns.size(); ++i) widest[i] = std::max(widest[i], columns[i]);
  }
};

// Whether a layer's network reads what its mixer does.
inline bool is_parallel(LayerForm form) {
  return form == LayerForm::kParallel || form == LayerForm::kParallelShared;
}

// Whether the networks of some layers read rows that are held.
inline bool has_held_rows(const DecoderSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const DecoderLayerSpec& layer) {
    return layer.form != LayerForm::kSequential;
  });
}

// Where the scratch memory of a pass over T rows lies in the workspace.
struct DecoderScratch {
  struct Angles {
    TensorPart cos, sin;  // [T, rope_dim / 2]
  };
  TensorPart normed;                     // [T, D]
  TensorPart branch;                     // [T, D]
  TensorPart network_input;              // [T, D] where networks read held rows; else nothing
  TensorPart carried;                    // [T, widest] from layer to layer, or nothing
  std::vector<TensorPart> mixer;         // [T, widest] of each area
  std::vector<TensorPart> feed_forward;  // [T, widest] of each area; or all that it shares
  std::vector<Angles> angles;            // [rope tables]

  static DecoderScratch place(ArenaPlaces& places, const DecoderSpec& spec,
                              const DecoderWidths& widths, int64_t rows, DType dtype,
                              const DeviceTraits& device) {
    DecoderScratch scratch;
    const Shape hidden{rows, spec.model.hidden_size};
    scratch.normed = places.take_tensor(dtype, hidden);
    const Shape held{has_held_rows(spec) ? rows : 0, spec.model.hidden_size};
    scratch.network_input = places.take_tensor(dtype, held);
    scratch.carried =
        places.take_tensor(dtype, Shape{widths.carried > 0 ? rows : 0, widths.carried});
    if (shares_scratch(device)) {
      // One memory for both parts of a layer: the mixer's areas side by side, or the
      // feed-forward's.
      scratch.branch = scratch.normed;
      const TensorPart shared = places.take_tensor(dtype, Shape{widths.shared_elements(rows)});
      scratch.mixer = side_by_side(shared, rows, widths.mixer);
      scratch.feed_forward = {shared};
    } else {
      scratch.branch = places.take_tensor(dtype, hidden);
      for (const int64_t columns : widths.mixer) {
        scratch.mixer.push_back(places.take_tensor(dtype, Shape{rows, columns}));
      }
      for (const int64_t columns : widths.feed_forward) {
        scratch.feed_forward.push_back(places.take_tensor(dtype, Shape{rows, columns}));
      }
    }
    for (const RopeTable& rope : spec.ropes) {
      const Shape shape{rows, std::ssize(rope.inv_freq)};
      const TensorPart cos = places.take_tensor(DType::kF32, shape);
      scratch.angles.push_back({cos, places.take_tensor(DType::kF32, shape)});
    }
    return scratch;
  }

 private:
  static std::vector<TensorPart> side_by_side(const TensorPart& memory, int64_t rows,
                                              const std::vector<int64_t>& columns) {
    std::vector<TensorPart> areas;
    int64_t first = memory.first;
    for (const int64_t each : columns) {
      areas.push_back({first, memory.dtype, Shape{rows, each}});
      first += *tensor_bytes(memory.dtype, areas.back().shape);
    }
    return areas;
  }
};

// The pieces that a pass over the layers takes of its workspace at most, those of its ops included.
inline int64_t scratch_parts_max(const DecoderSpec& spec) {
  return 6 + 2 * kPartAreasMax + 2 * std::ssize(spec.ropes);
}

}  // namespace headrace
