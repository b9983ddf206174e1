#include "models/parts/mamba_mixer.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "models/parts/state_parts.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/rms_norm.h"
#include "ops/states/causal_conv.h"

namespace headrace {
namespace {

class MambaMixer final : public Mixer {
 public:
  MambaMixer(const MambaSpec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}

  // Every rank has all channels: each step's rates are made of a sum over them.
  Status split(const ShardSpec& /*shard*/) override { return ok_status(); }

  Status load(LayerTensors& tensors) override {
    const int64_t inner = spec_.inner;
    HR_ASSIGN_OR_RETURN(
        in_,
        tensors.matrix({.rows = {{"ssm_in", 2 * inner}}, .columns = hidden_, .bias = spec_.bias}));
    HR_ASSIGN_OR_RETURN(taps_, load_conv_taps(tensors, "ssm_conv1d", inner, spec_.taps));
    if (spec_.conv_bias) {
      HR_ASSIGN_OR_RETURN(conv_bias_, tensors.vector("ssm_conv1d.bias", inner));
    }
    // A rounding of a time step is felt by all rows behind it.
    HR_ASSIGN_OR_RETURN(
        x_, tensors.matrix({.rows = {{"ssm_x", scan_width()}}, .columns = inner, .exact = true}));
    HR_RETURN_IF_ERROR(load_norms(tensors));
    HR_ASSIGN_OR_RETURN(
        dt_,
        tensors.matrix({.rows = {{"ssm_dt", inner}}, .columns = spec_.dt_rank, .exact = true}));
    HR_ASSIGN_OR_RETURN(dt_bias_, tensors.vector("ssm_dt.bias", inner));
    HR_RETURN_IF_ERROR(load_rates(tensors));
    HR_ASSIGN_OR_RETURN(skip_, tensors.vector("ssm_d", inner));
    HR_ASSIGN_OR_RETURN(
        out_,
        tensors.matrix({.rows = {{"ssm_out", hidden_}}, .columns = inner, .bias = spec_.bias}));
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override {
    return {&in_.weight, &x_.weight, &dt_.weight, &out_.weight};
  }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override {
    return conv_bytes() + selective_scan_state_bytes(spec_.state_dim, spec_.inner);
  }
  // Time steps, B and C are f32 beside rows of 16 bits, too.
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    const int64_t inner = spec_.inner;
    if (in_place) return {2 * inner, scan_width(), inner};
    return {2 * inner, 2 * scan_width(), 2 * inner, inner};
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    int64_t bytes = 0;
    for (const LinearLayer* const layer : {&in_, &x_, &dt_, &out_}) {
      bytes = std::max(bytes, linear_workspace_bytes(load.rows, layer->weight));
    }
    return bytes;
  }
  Status check_device(const DeviceTraits& device, DType) const override {
    const auto states_fit = [&](int64_t state_dim) {
      SelectiveScanArgs args;
      args.state_dim = static_cast<int32_t>(state_dim);
      return selective_scan_kernels().find(device, args) != nullptr;
    };
    if (states_fit(spec_.state_dim)) return check_taps_on(device, spec_.taps);
    return unsupported(
        fmt::format("states of Mamba of {} are larger than kernels on a GPU take, which is {}: use "
                    "--device cpu",
                    spec_.state_dim, largest_that_fits(spec_.state_dim, states_fit)));
  }

  void run(const MixerRun& run) const override {
    const int64_t rows = run.branch.rows(), inner = spec_.inner;
    OpContext& context = run.branch.context();
    const TensorView projected = run.scratch.rows(kProjected, rows, 2 * inner);
    run.branch.multiply_input(in_, projected);
    const TensorView made = column_range(projected, 0, inner);
    const TensorView x = run.scratch.in_place() ? made : run.scratch.rows(kX, rows, inner);
    causal_conv(context, {.x = made,
                          .before = {},
                          .behind = {},
                          .weight = taps_.data(),
                          .bias = conv_bias_.data(),
                          .taps = spec_.taps,
                          .activation = ConvActivation::kSilu,
                          .states = run.states,
                          .out = x});
    const TensorView scan = f32_rows(run, kScan, scan_width());  // dt of low rank, B, C
    multiply(context, x_, x, scan);
    const TensorView low = column_range(scan, 0, spec_.dt_rank);
    const TensorView b = column_range(scan, spec_.dt_rank, spec_.state_dim);
    const TensorView c = column_range(scan, spec_.dt_rank + spec_.state_dim, spec_.state_dim);
    normalise_scan(context, dt_norm_, low);
    normalise_scan(context, b_norm_, b);
    normalise_scan(context, c_norm_, c);
    const TensorView dt = f32_rows(run, kSteps, inner);
    multiply(context, dt_, low, dt);
    selective_scan(context, {.state_dim = spec_.state_dim,
                             .x = x,
                             .z = column_range(projected, inner, inner),
                             .dt = dt,
                             .b = b,
                             .c = c,
                             .rate = rate_.data(),
                             .dt_bias = dt_bias_.data(),
                             .skip = skip_.data(),
                             .states = run.states.behind(conv_bytes()),
                             .out = x});
    run.branch.end_with(out_, x);
  }

 private:
  enum Area : size_t { kProjected, kScan, kSteps, kX };  // of scratch memory

  int64_t scan_width() const { return spec_.dt_rank + int64_t{2} * spec_.state_dim; }
  int64_t conv_bytes() const {
    return aligned_state_bytes(causal_conv_state_bytes(spec_.taps, spec_.inner));
  }
  static TensorView f32_rows(const MixerRun& run, Area area, int64_t columns) {
    const int64_t rows = run.branch.rows();
    return {run.scratch.rows(area, rows, columns).data, DType::kF32, Shape{rows, columns}};
  }

  Status load_norms(LayerTensors& tensors) {
    const struct {
      const char* name;
      int64_t columns;
      DeviceVector& norm;
    } norms[] = {{"ssm_dt_norm.weight", spec_.dt_rank, dt_norm_},
                 {"ssm_b_norm.weight", spec_.state_dim, b_norm_},
                 {"ssm_c_norm.weight", spec_.state_dim, c_norm_}};
    for (const auto& each : norms) {
      if (spec_.norms == ScanNorms::kBare) {
        HR_ASSIGN_OR_RETURN(each.norm, tensors.constant(each.columns, 1.0f));
      } else if (spec_.norms == ScanNorms::kWeights) {
        HR_ASSIGN_OR_RETURN(each.norm, tensors.vector(each.name, each.columns));
      }
    }
    return ok_status();
  }

  // Files have them channel by channel, the scan wants [N, channels].
  Status load_rates(LayerTensors& tensors) {
    const auto channels = static_cast<size_t>(spec_.inner);
    const auto state = static_cast<size_t>(spec_.state_dim);
    HR_ASSIGN_OR_RETURN(const std::vector<float> in_file,
                        tensors.values("ssm_a", Shape{spec_.inner, spec_.state_dim}));
    std::vector<float> rates(in_file.size());
    for (size_t c = 0; c < channels; ++c) {
      for (size_t n = 0; n < state; ++n) {
        const float rate = in_file[c * state + n];
        rates[n * channels + c] = spec_.rate_is_log ? -std::exp(rate) : rate;
      }
    }
    HR_ASSIGN_OR_RETURN(rate_, tensors.made_vector(rates));
    return ok_status();
  }

  void normalise_scan(OpContext& context, const DeviceVector& weight,
                      const TensorView& rows) const {
    if (spec_.norms == ScanNorms::kNone) return;
    rms_norm(
        context,
        {.x = rows, .residual = {}, .weight = weight.data(), .eps = spec_.norm_eps, .out = rows});
  }

  const MambaSpec spec_;
  const int64_t hidden_;
  LinearLayer in_;                          // [2 C, D]: x, z
  DeviceVector taps_;                       // [taps, C]
  DeviceVector conv_bias_;                  // [C] or empty
  LinearLayer x_;                           // [rank + 2 N, C]
  DeviceVector dt_norm_, b_norm_, c_norm_;  // [rank], [N], [N] or empty
  LinearLayer dt_;                          // [C, rank]
  DeviceVector dt_bias_, skip_;             // [C]
  DeviceVector rate_;                       // [N, C]
  LinearLayer out_;                         // [D, C]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const MambaSpec& spec, int64_t hidden) {
  return std::make_unique<MambaMixer>(spec, hidden);
}

}  // namespace headrace
