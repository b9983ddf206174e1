// How attention without a rotation knows which keys are near (Inkling): keys and values are
// convolved by channel over the rows of a sequence as they are made, and added to themselves; a
// score gains, by how far its key is away, the sum of a few learned profiles, each times a number
// that the row has for the head.
#pragma once

#include <cstdint>

#include "models/parts/layer_part.h"
#include "ops/attention/attention.h"
#include "ops/states/causal_conv.h"

namespace headrace {

struct NearKeysSpec {
  int32_t taps = 0;  // of the convolutions, attn_k_conv and attn_v_conv; 0: there are none
  int32_t profiles =
      0;               // of distances, attn_rel_profiles [profiles, extent]; 0: scores gain nothing
  int32_t extent = 0;  // keys that are so far away gain nothing
};

class NearKeys {
 public:
  // The channels of keys and of values of a rank, of those in the file.
  struct Channels {
    int64_t count = 0, first = 0, of = 0;
  };

  explicit NearKeys(const NearKeysSpec& spec) : spec_(spec) {}

  bool is_here() const { return spec_.taps > 0 || spec_.profiles > 0; }
  Status load(LayerTensors& tensors, const Channels& keys, const Channels& values);
  // `channels`: of keys and values, of this rank.
  int64_t state_bytes(int64_t channels) const {
    return spec_.taps > 0 ? causal_conv_state_bytes(spec_.taps, channels) : 0;
  }
  // kUnsupported on a GPU, where there are any.
  Status check_device(const DeviceTraits& device) const;

  // In place, keys and values side by side [T, channels]; their states are the layer's.
  void convolve(OpContext& context, const StateView& states, const TensorView& kept) const;
  // Columns [first, first + count) of the rows are numbers of profiles, of each head its own.
  RelativeBias bias(const TensorView& rows, int64_t first, int64_t count) const;

 private:
  const NearKeysSpec spec_;
  DeviceVector taps_;      // [taps, channels] or empty
  DeviceVector profiles_;  // as relative_profiles() has them, or empty
};

}  // namespace headrace
