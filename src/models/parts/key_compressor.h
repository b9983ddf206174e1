// Keys that several tokens share (DeepSeek V4; DeepSeek-AI, 2026), beside those of the tokens in a
// layer's window: of each token sources are kept as long as the window is, of each run of tokens
// one key (ops/attention/compress_keys.h). An index may say which of these keys a row attends: it
// has such keys of its own. They lie in pages of their own, where no window passes: those of the
// layer before, which keeps them and does nothing else (NoMixerSpec::kept).
#pragma once

#include <cstdint>
#include <vector>

#include "models/parts/layer_part.h"
#include "ops/attention/select_keys.h"

namespace headrace {

struct KeyCompressorSpec {
  int32_t rate = 0;       // tokens that share a key; 0: none do
  bool overlaps = false;  // a key is of the run before, too
  int32_t dim = 0;        // of a key
  float norm_eps = 0.0f;
  std::vector<double> inv_freq;  // of the last pairs of components of a key, as RopeTable
  float angle_scale = 1.0f;
  int32_t layer = -1;       // that keeps the keys
  int32_t index_heads = 0;  // 0: rows attend all keys that they see
  int32_t index_dim = 0;
  int32_t index_top = 0;
  int32_t query_rank = 0;  // of what queries of the index are made of
  int32_t rope = 0;        // of these, index into DecoderSpec::ropes

  bool is_here() const { return rate > 0; }
  bool has_index() const { return index_heads > 0; }
  int32_t series() const { return overlaps ? 2 : 1; }
  // Tokens whose sources a key is made of.
  int32_t span() const { return rate * series(); }
  // What the other layer keeps.
  LayerKv kept() const {
    return {.kv_heads = 1,
            .k_dim = dim,
            .v_dim = dim,
            .v_aliases_k = true,
            .index_dim = has_index() ? index_dim : 0,
            .rate = rate};
  }
};

// The compressor of one layer, all of it on every rank.
class KeyCompressor {
 public:
  KeyCompressor(const KeyCompressorSpec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}

  const KeyCompressorSpec& spec() const { return spec_; }
  // Of all these, nothing where it is not.
  int32_t source_dim() const;  // of a token
  Status load(LayerTensors& tensors);
  std::vector<LinearWeight*> matrices();
  int64_t made_columns() const;
  int64_t index_columns() const;
  int64_t op_workspace_bytes(const PartLoad& load) const;

  // What is made of rows, in `made` [T, made_columns()]: sources, then what heads of the index are
  // worth to a row.
  TensorView make_sources(const MixerRun& run, const TensorView& made) const;
  // The keys of all runs of tokens that are complete now. REQUIRES: sources of all rows are kept
  void compress(const MixerRun& run) const;
  // The places of keys that each row attends, of an index. `latents` [T, query_rank]; `area`
  // [T, index_columns()]. REQUIRES: compress()
  ChosenPlaces choose(const MixerRun& run, const TensorView& latents, const TensorView& made,
                      const TensorView& area) const;

 private:
  // Of heads, or of the index: their tensors begin with this.
  struct Keys {
    DeviceVector bias;  // [rate, series dim]
    DeviceVector norm;  // [dim]
  };
  int32_t sources_of(int32_t dim) const { return 2 * spec_.series() * dim; }
  int64_t query_width() const { return int64_t{spec_.index_heads} * spec_.index_dim; }
  Status load_keys(LayerTensors& tensors, const std::string& name, int32_t dim, Keys& keys) const;
  void add_rows(const std::string& name, int32_t dim, MatrixStack& stack) const;

  const KeyCompressorSpec spec_;
  const int64_t hidden_;
  LinearLayer made_;   // [made_columns(), D]
  LinearLayer query_;  // [heads dim, query_rank] of the index
  Keys of_heads_, of_index_;
};

}  // namespace headrace
