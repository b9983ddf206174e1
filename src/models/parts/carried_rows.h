// What a pass carries beside its rows from the first layer to the last, for the layers' frames:
// what each layer reads of the token itself (Gemma 3n, 4), and streams of rows beside each other,
// of which a layer computes one (AltUp; Baykal et al., 2023).
//   inputs   (norm(W x / sqrt(D)) + sqrt(P) E[token]) / sqrt(2), P numbers a layer
//   token    its number, whole as it is in 32 bits (DeepSeek V4, whose first networks go by it)
//   streams  x, then rows that matrices make of it, each as large as x; behind the last layer the
//            others go through matrices likewise, and the mean of all is x
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/parts/gated_streams.h"
#include "models/parts/layer_part.h"

namespace headrace {

struct CarriedSpec {
  int32_t layers = 0;
  int32_t input_width = 0;  // P, of each layer; 0: layers read no tokens
  int32_t input_vocab = 0;  // rows of the table; tokens beyond it have the first
  float norm_eps = 0.0f;
  int32_t streams = 0;        // 0: the rows are all there is
  int32_t active_stream = 0;  // that layers compute
  bool streams_stacked = false;
  // Streams are read and written by gates (parts/hyper_frame.h, gated_streams_frame.h): all begin
  // as x, and gates join them behind the last layer.
  bool hyper = false;
  float hyper_eps = 0.0f;  // added to gates
  int32_t gate_rank = 0;   // > 0: gates are of a low rank (parts/gated_streams.h)
  // > 0: streams are mixed by a matrix, too, made doubly stochastic in so many rounds.
  int32_t hyper_rounds = 0;
  bool tokens = false;  // CPU
  int64_t behind = 0;   // columns behind these, which mixers have

  bool is_empty() const { return input_width == 0 && streams == 0; }
  // Columns of a carried row: inputs of all layers, streams, what AltUp keeps within a layer.
  int64_t input_columns() const { return int64_t{layers} * input_width; }
  int64_t input_column(int32_t layer) const { return int64_t{layer} * input_width; }
  int64_t stream_column(int32_t stream, int64_t hidden) const {
    return input_columns() + stream * hidden;
  }
  int64_t kept_column(int64_t hidden) const { return stream_column(streams, hidden); }
  // Of gates, what a part has read lies before them and their matrix behind.
  int64_t gate_column(int64_t hidden) const { return kept_column(hidden) + hidden; }
  int64_t mix_column(int64_t hidden) const { return gate_column(hidden) + (hyper ? streams : 0); }
  int64_t token_column(int64_t hidden) const {
    if (streams == 0) return input_columns();
    return mix_column(hidden) + (hyper_rounds > 0 ? int64_t{streams} * streams : 0);
  }
  int64_t columns(int64_t hidden) const { return token_column(hidden) + (tokens ? 1 : 0); }
};

class CarriedRows {
 public:
  CarriedRows(const CarriedSpec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}

  const CarriedSpec& spec() const { return spec_; }
  int64_t columns() const { return spec_.columns(hidden_); }
  // Tensors of the model, whose names have no layer.
  Status load(LayerTensors& tensors);
  std::vector<LinearWeight*> matrices();
  int64_t table_bytes() const { return table_matrix_.weight.packed_bytes(); }  // on a GPU
  int64_t workspace_bytes(int64_t rows) const;
  // Before the first layer: of x [T, D], the embeddings, which becomes the active stream.
  void begin(OpContext& context, std::span<const TokenId> tokens, const TensorView& x,
             const TensorView& carried) const;
  // The rows that are read on move to the front of carried [T, columns()], in their order.
  // REQUIRES: ascending, at least one
  void keep(OpContext& context, std::span<const int32_t> rows, const TensorView& carried) const;
  // Behind the last: x of all streams.
  void end(OpContext& context, const TensorView& x, const TensorView& carried) const;

 private:
  TensorView stream(const TensorView& carried, int32_t index) const;
  void make_inputs(OpContext& context, std::span<const TokenId> tokens, const TensorView& x,
                   const TensorView& carried) const;
  Status load_table(LayerTensors& tensors);
  Status load_hyper(LayerTensors& tensors);
  void join_by_gates(OpContext& context, const TensorView& x, const TensorView& carried) const;
  Status load_stream_matrices(LayerTensors& tensors, const char* name,
                              std::vector<LinearLayer>& matrices) const;

  const CarriedSpec spec_;
  const int64_t hidden_;
  ConstTensorView table_;            // [input_vocab, layers * P]: the file's own rows, or
  LinearLayer table_matrix_;         // on a GPU, this one's
  LinearLayer projection_;           // [layers * P, D]
  DeviceVector input_norm_;          // [P]
  std::vector<LinearLayer> spread_;  // [streams - 1] of [D, D]
  std::vector<LinearLayer> joined_;  // likewise, behind the last layer
  // Of gates: [streams, streams D], [1], [streams].
  LinearLayer hyper_;
  DeviceVector hyper_scale_, hyper_bias_;
  std::optional<GatedStreams> joined_streams_;  // of a low rank, in place of these
};

}  // namespace headrace
