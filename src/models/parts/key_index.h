// The index of sparse attention (DeepSeek-AI, 2025): few heads and one key a token say which keys a
// row attends, where it sees more than `top` (ops/attention/select_keys.h). Its keys lie beside
// what its layer attends (LayerKv::index_dim).
#pragma once

#include <cstdint>
#include <vector>

#include "models/parts/layer_part.h"
#include "ops/attention/select_keys.h"

namespace headrace {

struct KeyIndexSpec {
  int32_t heads = 0;  // 0: rows attend all that they see
  int32_t dim = 0;    // of a key, of which the first components are rotated
  int32_t top = 0;
  bool rows_interleaved = false;  // rotated rows lie in the order of interleaved rotation
  bool rotated_last = false;      // they are the last of a head, as they are (Hunyuan V4)
  float norm_eps = 1e-6f;         // of keys: the library's own constant in most classes
  bool shared = false;  // the layer has none and attends what the last one before it chose that has
  bool carried = false;  // what it chooses goes on to later layers, in MixerRun::carried

  bool is_sparse() const { return heads > 0; }
};

// The index of one layer, all of it on every rank.
class KeyIndex {
 public:
  // Queries are made of rows of `query_rank`; of a head `rope_dim` components are rotated, by the
  // angles of table `rope`.
  KeyIndex(const KeyIndexSpec& spec, int64_t hidden, int32_t query_rank, int32_t rope_dim,
           int32_t rope)
      : spec_(spec), hidden_(hidden), query_rank_(query_rank), rope_dim_(rope_dim), rope_(rope) {}

  bool is_here() const { return spec_.is_sparse() && !spec_.shared; }
  // kUnsupported, naming the size and what to do, where a GPU's kernels do not take it.
  Status check_device(const DeviceTraits& device, DType activations) const;
  // Of the last three, nothing where it is not.
  Status load(LayerTensors& tensors);
  std::vector<LinearWeight*> matrices();
  int64_t scratch_columns() const;
  // Of rows that are carried. REQUIRES: load()
  int64_t carried_columns() const { return spec_.carried ? number_columns(spec_.top) : 0; }
  int64_t op_workspace_bytes(const PartLoad& load) const;

  // The places that each row attends, which this layer chooses, or one before it did.
  // `latents` [T, query_rank]: what its queries are made of; `area` [T, scratch_columns()].
  ChosenPlaces choose(const MixerRun& run, const TensorView& latents, const TensorView& area) const;

 private:
  // Where the parts of its area begin, in columns.
  struct Area {
    int64_t made, chosen, end;
  };
  std::vector<int32_t> order_of_heads(int32_t heads) const;  // of their rows in files
  int64_t query_width() const { return int64_t{spec_.heads} * spec_.dim; }
  int64_t number_columns(int64_t count) const;
  Area area() const;
  ChosenPlaces places_in(const TensorView& rows, int64_t column) const;

  const KeyIndexSpec spec_;
  const int64_t hidden_;
  const int32_t query_rank_, rope_dim_, rope_;
  LinearLayer down_;   // [dim + heads, D]: the key, and what heads are worth to a row
  LinearLayer query_;  // [heads dim, query_rank]
  DeviceVector norm_;  // [dim]
  DeviceVector norm_bias_;
  bool on_gpu_ = false;
};

}  // namespace headrace
