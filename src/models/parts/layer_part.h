// What a layer is made of: a mixer, through which the rows of a sequence see each other, and a
// feed-forward network, which takes each row by itself. A part is made of its spec (part_list.h)
// and knows all that is its own: tensors, widths of scratch memory, what it keeps of each token,
// and the ops that run. Norms, residuals and the choice of rows are the pass's (decoder.cc).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/layer_tensors.h"
#include "models/model.h"
#include "models/parts/low_rank_addition.h"
#include "models/residual_stream.h"
#include "models/shard.h"

namespace headrace {

// What a step asks of a part at most.
struct PartLoad {
  int64_t rows = 0;
  int32_t kv_length_max = 0;
  int32_t thread_count = 0;
};

// The areas of scratch memory that scratch_columns() asked for, of the activation type.
class PartScratch {
 public:
  PartScratch(std::span<const TensorView> areas, bool in_place)
      : areas_(areas), in_place_(in_place) {}
  bool in_place() const { return in_place_; }  // as it was asked for
  // Dense rows at the front of an area. REQUIRES: they fit
  TensorView rows(size_t area, int64_t count, int64_t columns) const {
    const TensorView& all = areas_[area];
    CHECK(count <= all.rows() && columns <= all.columns());
    return {all.data, all.dtype, Shape{count, columns}};
  }
  // The areas behind the first `count`: of a part in a part.
  PartScratch behind(size_t count) const { return {areas_.subspan(count), in_place_}; }

 private:
  std::span<const TensorView> areas_;  // [rows, columns], dense
  const bool in_place_;
};

// Cosines and sines of a batch's positions under one rotation.
struct RopeAngles {
  TensorView cos, sin;  // [T, rope_dim / 2] f32
};

// Thread-safety: const after load(), any thread; one run at a time has its scratch memory.
class LayerPart {
 public:
  virtual ~LayerPart() = default;
  // Before load(): from here on it is the part of one rank. kUnsupported, naming what is not split.
  virtual Status split(const ShardSpec& /*shard*/) {
    return unsupported(
        "this model has layers that cannot be split over ranks: use "
        "--tensor-parallel-size 1");
  }
  // Asks for every tensor of the part, in the order of the file formats' own writers.
  virtual Status load(LayerTensors& tensors) = 0;
  // All that a step multiplies by, in its order.
  virtual std::vector<LinearWeight*> matrices() = 0;
  // The columns of each area of scratch memory that a run takes; no more areas than
  // kPartAreasMax. Where `in_place`, an op has ended before the next begins, and a part need not
  // keep its results apart from what they are made of.
  virtual std::vector<int64_t> scratch_columns(bool in_place) const = 0;
  // Of the workspace, what the ops of a run take at most, one at a time.
  virtual int64_t op_workspace_bytes(const PartLoad& load) const = 0;
  // kUnsupported, naming the size and what to do, where a GPU's kernels do not take its sizes.
  virtual Status check_device(const DeviceTraits& /*device*/, DType /*activations*/) const {
    return ok_status();
  }
};

inline constexpr int64_t kPartAreasMax = 6;

// What is added to a mixer's first product beside what its own matrix gives.
struct InputAddition {
  const LowRankAddition* addition;
  TensorView low;  // its scratch rows
};

// What a mixer reads and writes of another layer's.
struct PagesBeside {
  const KvLayerView* kv = nullptr;
  const ForwardBatch::Group* group = nullptr;
};

struct MixerRun {
  ResidualBranch& branch;                   // of all rows of the batch
  PartScratch scratch;                      // [T]
  std::span<const RopeAngles> angles;       // [rope tables]
  const KvLayerView& kv;                    // of this layer
  const ForwardBatch::Group& group;         // where its rows are kept
  const ForwardBatch::KeptRows* kept;       // null: all rows are read behind this layer
  StateView states = {};                    // of this layer, where the mixer keeps one
  TensorView carried = {};                  // [T, carried_columns()] of all layers
  TensorView frames = {};                   // [T, columns of frames], where frames carry rows
  std::span<const int32_t> positions = {};  // [T], in the device's memory
  PagesBeside beside = {};                  // of Mixer::pages_beside()
  // Of attention; null: nothing.
  const InputAddition* addition = nullptr;
};

class Mixer : public LayerPart {
 public:
  // What it keeps of each token in the cache; no key heads: nothing.
  virtual LayerKv kept() const = 0;
  // What it keeps of a sequence, whatever its length.
  virtual int64_t state_bytes() const { return 0; }
  // Of each row, what a layer leaves for later ones of the pass: the first writes it.
  virtual int64_t carried_columns() const { return 0; }
  // Of each row, to attend what is kept; 0: it does not attend.
  virtual int32_t query_heads() const { return 0; }
  // The layer whose keys and values it attends in place of its own; -1: it has its own.
  virtual int32_t keys_of() const { return -1; }
  // The layer of whose pages it has the use, beside its own; -1: none.
  virtual int32_t pages_beside() const { return -1; }
  // Where `kept` has a choice of rows, a mixer may go on with these alone (branch.keep_rows()) as
  // soon as all rows have left what later ones need; with none it ends there. What it does not
  // leave out the pass does.
  virtual void run(const MixerRun& run) const = 0;
};

struct FeedForwardRun {
  ResidualBranch& branch;  // of some rows of the batch
  PartScratch scratch;
  ConstTensorView router_input = {};  // of a mixture whose router reads rows of its own; no data
  ConstTensorView carried = {};       // [rows, columns of frames], where frames carry rows
};

class FeedForward : public LayerPart {
 public:
  // Rows that a run should have where a pass shares scratch memory and gives a network `usual` rows
  // at a time.
  virtual int64_t rows_of_run(int64_t usual) const { return usual; }
  virtual void run(const FeedForwardRun& run) const = 0;
};

}  // namespace headrace
