#include "models/parts/short_conv_mixer.h"

#include <algorithm>

#include "models/parts/state_parts.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/states/causal_conv.h"

namespace headrace {
namespace {

class ShortConvMixer final : public Mixer {
 public:
  ShortConvMixer(const ShortConvSpec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}

  Status load(LayerTensors& tensors) override {
    HR_ASSIGN_OR_RETURN(taps_, load_conv_taps(tensors, "shortconv.conv", hidden_, spec_.taps));
    HR_ASSIGN_OR_RETURN(
        in_, tensors.matrix({.rows = {{"shortconv.in_proj", 3 * hidden_}}, .columns = hidden_}));
    HR_ASSIGN_OR_RETURN(
        out_, tensors.matrix({.rows = {{"shortconv.out_proj", hidden_}}, .columns = hidden_}));
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override { return {&in_.weight, &out_.weight}; }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override { return causal_conv_state_bytes(spec_.taps, hidden_); }
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    if (in_place) return {3 * hidden_};
    return {3 * hidden_, hidden_};
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max(linear_workspace_bytes(load.rows, in_.weight),
                    linear_workspace_bytes(load.rows, out_.weight));
  }
  Status check_device(const DeviceTraits& device, DType) const override {
    return check_taps_on(device, spec_.taps);
  }

  void run(const MixerRun& run) const override {
    const int64_t rows = run.branch.rows();
    const TensorView projected = run.scratch.rows(kProjected, rows, 3 * hidden_);
    run.branch.multiply_input(in_, projected);
    const TensorView x = column_range(projected, 2 * hidden_, hidden_);
    const TensorView out = run.scratch.in_place() ? x : run.scratch.rows(kOut, rows, hidden_);
    causal_conv(run.branch.context(), {.x = x,
                                       .before = column_range(projected, 0, hidden_),
                                       .behind = column_range(projected, hidden_, hidden_),
                                       .weight = taps_.data(),
                                       .bias = nullptr,
                                       .taps = spec_.taps,
                                       .states = run.states,
                                       .out = out});
    run.branch.end_with(out_, out);
  }

 private:
  enum Area : size_t { kProjected, kOut };  // of scratch memory

  const ShortConvSpec spec_;
  const int64_t hidden_;
  LinearLayer in_;     // [3D, D]: B, C, x
  DeviceVector taps_;  // [taps, D]
  LinearLayer out_;    // [D, D]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const ShortConvSpec& spec, int64_t hidden) {
  return std::make_unique<ShortConvMixer>(spec, hidden);
}

}  // namespace headrace
