#include "models/parts/mamba2_mixer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "models/parts/state_parts.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/states/causal_conv.h"

namespace headrace {
namespace {

class Mamba2Mixer final : public Mixer {
 public:
  Mamba2Mixer(const Mamba2Spec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}

  // Every rank has all heads.
  Status split(const ShardSpec& /*shard*/) override { return ok_status(); }

  Status load(LayerTensors& tensors) override {
    const SsdHeads& heads = spec_.heads;
    HR_ASSIGN_OR_RETURN(in_, tensors.matrix(xbc_and_z()));
    HR_ASSIGN_OR_RETURN(dt_, tensors.matrix(time_steps()));
    HR_ASSIGN_OR_RETURN(
        taps_, load_conv_taps(tensors, "ssm_conv1d", heads.xbc(), spec_.taps, channel_scales()));
    if (spec_.conv_bias) {
      HR_ASSIGN_OR_RETURN(conv_bias_, tensors.vector("ssm_conv1d.bias", heads.xbc()));
    }
    HR_ASSIGN_OR_RETURN(dt_bias_, tensors.vector("ssm_dt.bias", heads.heads));
    HR_ASSIGN_OR_RETURN(rate_, load_rates(tensors, Shape{heads.heads}, spec_.rate_is_log));
    HR_ASSIGN_OR_RETURN(skip_, tensors.vector("ssm_d", heads.heads));
    if (spec_.norm == GatedNorm::kNone) {
      HR_ASSIGN_OR_RETURN(norm_, tensors.constant(heads.values(), 1.0f));
    } else {
      HR_ASSIGN_OR_RETURN(norm_, tensors.vector("ssm_norm.weight", heads.values()));
    }
    HR_ASSIGN_OR_RETURN(out_, tensors.matrix({.rows = {{"ssm_out", hidden_}},
                                              .columns = heads.values(),
                                              .bias = spec_.out_bias}));
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override {
    return {&in_.weight, &dt_.weight, &out_.weight};
  }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override { return conv_bytes() + spec_.heads.state_bytes(); }
  // Time steps are f32 beside rows of 16 bits, too.
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    if (in_place) return {projected_width(), steps_width()};
    return {projected_width(), 2 * steps_width(), spec_.heads.xbc()};
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max({linear_workspace_bytes(load.rows, in_.weight),
                     linear_workspace_bytes(load.rows, dt_.weight),
                     linear_workspace_bytes(load.rows, out_.weight)});
  }
  Status check_device(const DeviceTraits& device, DType) const override {
    const auto states_fit = [&](int64_t state_dim) {
      SsdScanArgs args;
      args.heads = spec_.heads;
      args.heads.state_dim = static_cast<int32_t>(state_dim);
      return ssd_scan_kernels().find(device, args) != nullptr;
    };
    if (states_fit(spec_.heads.state_dim)) return check_taps_on(device, spec_.taps);
    return unsupported(
        fmt::format("states of Mamba-2 of {} are larger than kernels on a GPU take, which is {}: "
                    "use --device cpu",
                    spec_.heads.state_dim, largest_that_fits(spec_.heads.state_dim, states_fit)));
  }

  void run(const MixerRun& run) const override {
    const SsdHeads& heads = spec_.heads;
    OpContext& context = run.branch.context();
    const int64_t rows = run.branch.rows();
    const TensorView projected = run.scratch.rows(kProjected, rows, projected_width());
    const TensorView steps(run.scratch.rows(kSteps, rows, steps_width()).data, DType::kF32,
                           Shape{rows, steps_width()});
    const ConstTensorView x = run.branch.input();
    multiply(context, in_, x, projected);
    multiply(context, dt_, x, column_range(steps, 0, heads.heads));
    const TensorView made = column_range(projected, 0, heads.xbc());
    const TensorView xbc =
        run.scratch.in_place() ? made : run.scratch.rows(kXbc, rows, heads.xbc());
    causal_conv(context, {.x = made,
                          .before = {},
                          .behind = {},
                          .weight = taps_.data(),
                          .bias = conv_bias_.data(),
                          .taps = spec_.taps,
                          .activation = ConvActivation::kSilu,
                          .states = run.states,
                          .out = xbc});
    const TensorView out = column_range(xbc, 0, heads.values());  // x's place
    ssd_scan(context, {.heads = heads,
                       .xbc = xbc,
                       .dt = steps,
                       .rate = rate_.data(),
                       .dt_bias = dt_bias_.data(),
                       .skip = skip_.data(),
                       .time_step = {.scale = spec_.scales.in * spec_.scales.dt,
                                     .min = spec_.dt_min,
                                     .max = spec_.dt_max},
                       .states = run.states.behind(conv_bytes()),
                       .out = out});
    gated_norm(context, {.x = out,
                         .gate = column_range(projected, heads.xbc(), heads.values()),
                         .weight = norm_.data(),
                         .norm = spec_.norm,
                         .group = heads.values() / heads.groups,
                         .eps = spec_.norm_eps,
                         .gate_scale = spec_.scales.in * spec_.scales.z});
    run.branch.end_with(out_, out);
  }

 private:
  enum Area : size_t { kProjected, kSteps, kXbc };  // of scratch memory

  int64_t steps_width() const { return int64_t{2} * spec_.heads.heads; }
  int64_t projected_width() const { return spec_.heads.xbc() + spec_.heads.values(); }
  int64_t rows_in_file() const { return projected_width() + spec_.heads.heads; }
  int64_t conv_bytes() const {
    return aligned_state_bytes(causal_conv_state_bytes(spec_.taps, spec_.heads.xbc()));
  }

  // Rows of ssm_in from `first` on.
  MatrixStack::Rows rows_from(int64_t first, int64_t count) const {
    MatrixStack::Rows rows{"ssm_in", rows_in_file()};
    rows.take(first, count);
    return rows;
  }
  MatrixStack xbc_and_z() const {
    const SsdHeads& heads = spec_.heads;
    return {.rows = {rows_from(heads.values(), heads.xbc()), rows_from(0, heads.values())},
            .columns = hidden_,
            .bias = spec_.in_bias};
  }
  // A rounding of a time step is felt by all rows behind it.
  MatrixStack time_steps() const {
    return {.rows = {rows_from(projected_width(), spec_.heads.heads)},
            .columns = hidden_,
            .bias = spec_.in_bias,
            .exact = true};
  }

  // What x, B and C are multiplied by before the convolution, which may as well do it.
  std::vector<float> channel_scales() const {
    const Mamba2Scales& scales = spec_.scales;
    std::vector<float> channels(static_cast<size_t>(spec_.heads.values()), scales.in * scales.x);
    const auto keys = static_cast<size_t>(spec_.heads.keys());
    channels.insert(channels.end(), keys, scales.in * scales.b);
    channels.insert(channels.end(), keys, scales.in * scales.c);
    return channels;
  }

  const Mamba2Spec spec_;
  const int64_t hidden_;
  LinearLayer in_;                      // [xbc + values, D]: x, B, C, z
  LinearLayer dt_;                      // [heads, D]
  DeviceVector taps_;                   // [taps, xbc]
  DeviceVector conv_bias_;              // [xbc] or empty
  DeviceVector dt_bias_, rate_, skip_;  // [heads]
  DeviceVector norm_;                   // [values]
  LinearLayer out_;                     // [D, values]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const Mamba2Spec& spec, int64_t hidden) {
  return std::make_unique<Mamba2Mixer>(spec, hidden);
}

}  // namespace headrace
