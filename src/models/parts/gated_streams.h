// One row of N streams S of rows beside each other, by gates of a low rank (Qwen 4):
//   n_j  = RMSNorm(S_j), each stream with weights of its own;   u = up silu(down n / N)
//   x    = mean over j of sigmoid(u_j) n_j
// and what is made of x goes to each stream by a gate: S_j := S_j + 2 sigmoid(l_j) made, where
// l = inject n / N.
#pragma once

#include <string>
#include <vector>

#include "models/layer_tensors.h"

namespace headrace {

class GatedStreams {
 public:
  // `injects`: something is added to the streams.
  GatedStreams(int64_t streams, int64_t rank, float norm_eps, int64_t hidden, bool injects)
      : streams_(streams), rank_(rank), hidden_(hidden), norm_eps_(norm_eps), injects_(injects) {}

  // Tensors name_norm.weight [N D], name_down.weight [rank, N D], name_up.weight [N D, rank], and
  // name_inject.weight [N, N D].
  Status load(LayerTensors& tensors, const std::string& name);
  std::vector<LinearWeight*> matrices();
  int64_t workspace_bytes(int64_t rows) const;
  // streams [R, N D] -> x [R, D]; `logits` [R, N], or no data where nothing is injected.
  void read(OpContext& context, const TensorView& streams, const TensorView& x,
            const TensorView& logits) const;
  // S_j := S_j + 2 sigmoid(logits_j) made, of made [R, D].
  void add(OpContext& context, const TensorView& streams, const TensorView& made,
           const TensorView& logits) const;

 private:
  TensorView stream(const TensorView& rows, int64_t index) const;
  void divide_by_count(OpContext& context, const TensorView& rows) const;

  const int64_t streams_, rank_, hidden_;
  const float norm_eps_;
  const bool injects_;
  DeviceVector norm_;      // [N D]
  LinearLayer down_, up_;  // [rank, N D], [N D, rank]
  LinearLayer inject_;     // [N, N D]
};

// out_j = RMSNorm(x_j) of each of the equal parts of rows x, each with weights of its own, as many
// as a row has. `out` may be x.
void normalise_parts(OpContext& context, const TensorView& x, const float* weight, float eps,
                     int64_t parts, const TensorView& out);

}  // namespace headrace
