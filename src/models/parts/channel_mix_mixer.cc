#include "models/parts/channel_mix_mixer.h"

#include <algorithm>

#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/states/token_shift.h"

namespace headrace {
namespace {

class ChannelMixMixer final : public Mixer {
 public:
  ChannelMixMixer(const ChannelMixSpec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}

  Status split(const ShardSpec& /*shard*/) override { return ok_status(); }

  Status load(LayerTensors& tensors) override {
    HR_ASSIGN_OR_RETURN(mix_, tensors.vector("channel_mix_lerp_k.weight", hidden_));
    HR_ASSIGN_OR_RETURN(
        key_, tensors.matrix({.rows = {{"channel_mix_key", spec_.width}}, .columns = hidden_}));
    HR_ASSIGN_OR_RETURN(
        value_, tensors.matrix({.rows = {{"channel_mix_value", hidden_}}, .columns = spec_.width}));
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override { return {&key_.weight, &value_.weight}; }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override { return token_shift_state_bytes(hidden_); }
  std::vector<int64_t> scratch_columns(bool /*in_place*/) const override {
    return {hidden_, spec_.width};
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max(linear_workspace_bytes(load.rows, key_.weight),
                    linear_workspace_bytes(load.rows, value_.weight));
  }

  void run(const MixerRun& run) const override {
    OpContext& context = run.branch.context();
    const int64_t rows = run.branch.rows();
    const TensorView mixed = run.scratch.rows(kMixed, rows, hidden_);
    const TensorView key = run.scratch.rows(kKey, rows, spec_.width);
    token_shift(context, {.x = run.branch.input(),
                          .mix = mix_.data(),
                          .mixes = 1,
                          .states = run.states,
                          .out = mixed});
    multiply(context, key_, mixed, key);
    activation(context, {.x = key, .activation = Activation::kReluSquared, .out = key});
    run.branch.end_with(value_, key);
  }

 private:
  enum Area : size_t { kMixed, kKey };  // of scratch memory

  const ChannelMixSpec spec_;
  const int64_t hidden_;
  DeviceVector mix_;   // [D]
  LinearLayer key_;    // [F, D]
  LinearLayer value_;  // [D, F]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const ChannelMixSpec& spec, int64_t hidden) {
  return std::make_unique<ChannelMixMixer>(spec, hidden);
}

}  // namespace headrace
