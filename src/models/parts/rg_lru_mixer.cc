#include "models/parts/rg_lru_mixer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "models/parts/state_parts.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/states/causal_conv.h"
#include "ops/states/rg_lru.h"

namespace headrace {
namespace {

class RgLruMixer final : public Mixer {
 public:
  RgLruMixer(const RgLruSpec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}

  Status split(const ShardSpec& /*shard*/) override { return ok_status(); }

  Status load(LayerTensors& tensors) override {
    const int64_t channels = spec_.channels;
    HR_ASSIGN_OR_RETURN(in_, tensors.matrix({.rows = {{"lru_x", channels}, {"lru_gate", channels}},
                                             .columns = hidden_,
                                             .bias = true}));
    HR_ASSIGN_OR_RETURN(taps_, load_conv_taps(tensors, "lru_conv1d", channels, spec_.taps));
    HR_ASSIGN_OR_RETURN(conv_bias_, tensors.vector("lru_conv1d.bias", channels));
    for (int32_t head = 0; head < spec_.heads; ++head) {
      for (const auto& [name, gates] :
           {std::pair("lru_in_gate", &in_gates_), {"lru_forget_gate", &forget_gates_}}) {
        HR_ASSIGN_OR_RETURN(LinearLayer gate, tensors.matrix(gate_of(name, head)));
        gates->push_back(std::move(gate));
      }
    }
    HR_ASSIGN_OR_RETURN(in_bias_, tensors.vector("lru_in_gate.bias", channels));
    HR_ASSIGN_OR_RETURN(forget_bias_, tensors.vector("lru_forget_gate.bias", channels));
    HR_ASSIGN_OR_RETURN(std::vector<float> rates, tensors.values("lru_a", Shape{channels}));
    for (float& rate : rates) rate = -8 * std::log1p(std::exp(rate));
    HR_ASSIGN_OR_RETURN(rate_, tensors.made_vector(rates));
    HR_ASSIGN_OR_RETURN(
        out_, tensors.matrix({.rows = {{"lru_out", hidden_}}, .columns = channels, .bias = true}));
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&in_.weight};
    for (LinearLayer& gate : in_gates_) all.push_back(&gate.weight);
    for (LinearLayer& gate : forget_gates_) all.push_back(&gate.weight);
    all.push_back(&out_.weight);
    return all;
  }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override { return conv_bytes() + rg_lru_state_bytes(spec_.channels); }
  // What the recurrence's gates are made of is f32 beside rows of 16 bits, too.
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    const int64_t channels = spec_.channels;
    return {2 * channels, (in_place ? 2 : 4) * channels, in_place ? 1 : channels};
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max({linear_workspace_bytes(load.rows, in_.weight),
                     linear_workspace_bytes(load.rows, out_.weight),
                     linear_workspace_bytes(load.rows, in_gates_.front().weight)});
  }
  Status check_device(const DeviceTraits& device, DType) const override {
    return check_taps_on(device, spec_.taps);
  }

  void run(const MixerRun& run) const override {
    OpContext& context = run.branch.context();
    const int64_t rows = run.branch.rows(), channels = spec_.channels, width = head_width();
    const TensorView projected = run.scratch.rows(kProjected, rows, 2 * channels);
    const TensorView gates{run.scratch.rows(kGates, rows, 2 * channels).data, DType::kF32,
                           Shape{rows, 2 * channels}};
    multiply(context, in_, run.branch.input(), projected);
    const TensorView made = column_range(projected, 0, channels);
    const TensorView x = run.scratch.in_place() ? made : run.scratch.rows(kX, rows, channels);
    const TensorView gate = column_range(projected, channels, channels);
    activation(context, {.x = gate, .activation = spec_.activation, .out = gate});
    causal_conv(context, {.x = made,
                          .before = {},
                          .behind = {},
                          .weight = taps_.data(),
                          .bias = conv_bias_.data(),
                          .taps = spec_.taps,
                          .states = run.states,
                          .out = x});
    const TensorView in = column_range(gates, 0, channels);
    const TensorView forget = column_range(gates, channels, channels);
    for (size_t head = 0; head < in_gates_.size(); ++head) {
      const int64_t first = static_cast<int64_t>(head) * width;
      const TensorView own = column_range(x, first, width);
      multiply(context, in_gates_[head], own, column_range(in, first, width));
      multiply(context, forget_gates_[head], own, column_range(forget, first, width));
    }
    rg_lru(context, {.x = x,
                     .in = in,
                     .forget = forget,
                     .gate = gate,
                     .in_bias = in_bias_.data(),
                     .forget_bias = forget_bias_.data(),
                     .rate = rate_.data(),
                     .states = run.states.behind(conv_bytes()),
                     .out = x});
    run.branch.end_with(out_, x);
  }

 private:
  enum Area : size_t { kProjected, kGates, kX };  // of scratch memory

  int64_t head_width() const { return spec_.channels / spec_.heads; }
  int64_t conv_bytes() const {
    return aligned_state_bytes(causal_conv_state_bytes(spec_.taps, spec_.channels));
  }
  // A rounding of what a state forgets by is felt by all rows behind it.
  MatrixStack gate_of(const char* name, int32_t head) const {
    return {.rows = {{.name = name, .count = head_width(), .experts = spec_.heads, .expert = head}},
            .columns = head_width(),
            .exact = true};
  }

  const RgLruSpec spec_;
  const int64_t hidden_;
  LinearLayer in_;                                    // [2 C, D]: x, gate
  DeviceVector taps_, conv_bias_;                     // [taps, C], [C]
  std::vector<LinearLayer> in_gates_, forget_gates_;  // [heads] of [C / heads, C / heads]
  DeviceVector in_bias_, forget_bias_, rate_;         // [C]
  LinearLayer out_;                                   // [D, C]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const RgLruSpec& spec, int64_t hidden) {
  return std::make_unique<RgLruMixer>(spec, hidden);
}

}  // namespace headrace
