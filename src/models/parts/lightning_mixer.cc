#include "models/parts/lightning_mixer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "models/kernel_sizes.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/sigmoid_gate.h"
#include "ops/states/ssd_scan.h"

namespace headrace {
namespace {

class LightningMixer final : public Mixer {
 public:
  LightningMixer(const LightningSpec& spec, int64_t hidden)
      : spec_(spec),
        hidden_(hidden),
        scan_{.heads = spec.heads,
              .head_dim = spec.head_dim,
              .groups = spec.heads,
              .state_dim = spec.head_dim} {}

  // Every rank has all heads: the norm is over all of them.
  Status split(const ShardSpec& /*shard*/) override { return ok_status(); }

  Status load(LayerTensors& tensors) override {
    HR_ASSIGN_OR_RETURN(in_, tensors.matrix({.rows = {{"attn_qkv", 3 * spec_.columns(), order()},
                                                      {"attn_gate", spec_.columns()}},
                                             .columns = hidden_}));
    HR_ASSIGN_OR_RETURN(norm_, tensors.vector("attn_norm_2.weight", spec_.columns()));
    HR_ASSIGN_OR_RETURN(
        out_, tensors.matrix({.rows = {{"attn_output", hidden_}}, .columns = spec_.columns()}));
    std::vector<float> rates;
    for (int32_t h = 1; h <= spec_.heads; ++h) {
      rates.push_back(static_cast<float>(-spec_.slope_factor * std::exp2(-8.0 * h / spec_.heads)));
    }
    HR_ASSIGN_OR_RETURN(rates_, tensors.made_vector(rates));
    const std::vector<float> zeros(rates.size(), 0.0f);
    HR_ASSIGN_OR_RETURN(zeros_, tensors.made_vector(zeros));
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override { return {&in_.weight, &out_.weight}; }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override { return scan_.state_bytes(); }
  // Time steps are f32 beside rows of 16 bits, too.
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    return {4 * spec_.columns(), (in_place ? 1 : 2) * steps_width()};
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max(linear_workspace_bytes(load.rows, in_.weight),
                    linear_workspace_bytes(load.rows, out_.weight));
  }
  Status check_device(const DeviceTraits& device, DType) const override {
    const auto heads_fit = [&](int64_t head_dim) {
      SsdScanArgs args;
      args.heads = scan_;
      args.heads.head_dim = args.heads.state_dim = static_cast<int32_t>(head_dim);
      return ssd_scan_kernels().find(device, args) != nullptr;
    };
    if (heads_fit(spec_.head_dim)) return ok_status();
    return unsupported(
        fmt::format("heads of lightning attention of {} are larger than kernels on a GPU take, "
                    "which is {}: use --device cpu",
                    spec_.head_dim, largest_that_fits(spec_.head_dim, heads_fit)));
  }

  void run(const MixerRun& run) const override {
    OpContext& context = run.branch.context();
    const int64_t rows = run.branch.rows(), columns = spec_.columns();
    const TensorView projected = run.scratch.rows(kProjected, rows, 4 * columns);
    const TensorView steps(run.scratch.rows(kSteps, rows, steps_width()).data, DType::kF32,
                           Shape{rows, steps_width()});  // not read, as all are 1
    run.branch.multiply_input(in_, projected);
    const TensorView vkq = column_range(projected, 0, 3 * columns);
    activation(context, {.x = vkq, .activation = Activation::kSilu, .out = vkq});
    const TensorView out = column_range(vkq, 0, columns);  // v's place
    ssd_scan(context, {.heads = scan_,
                       .xbc = vkq,
                       .dt = steps,
                       .rate = rates_.data(),
                       .dt_bias = zeros_.data(),
                       .skip = zeros_.data(),
                       .time_step = {.min = 1.0f, .max = 1.0f},
                       .states = run.states,
                       .out = out});
    rms_norm(context,
             {.x = out, .residual = {}, .weight = norm_.data(), .eps = spec_.norm_eps, .out = out});
    sigmoid_gate(context, {.x = out, .gate = column_range(projected, 3 * columns, columns)});
    run.branch.end_with(out_, out);
  }

 private:
  enum Area : size_t { kProjected, kSteps };  // of scratch memory

  int64_t steps_width() const { return 2 * int64_t{spec_.heads}; }
  // Files have q, k and v of one head after another; a scan wants v of all heads, k, then q.
  std::vector<int32_t> order() const {
    std::vector<int32_t> rows;
    for (const int32_t thing : {2, 1, 0}) {
      for (int32_t head = 0; head < spec_.heads; ++head) {
        for (int32_t d = 0; d < spec_.head_dim; ++d) {
          rows.push_back((3 * head + thing) * spec_.head_dim + d);
        }
      }
    }
    return rows;
  }

  const LightningSpec spec_;
  const int64_t hidden_;
  const SsdHeads scan_;
  LinearLayer in_;              // [4 columns, D]: v, k, q, gates
  DeviceVector norm_;           // [columns]
  DeviceVector rates_, zeros_;  // [heads]
  LinearLayer out_;             // [D, columns]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const LightningSpec& spec, int64_t hidden) {
  return std::make_unique<LightningMixer>(spec, hidden);
}

}  // namespace headrace
