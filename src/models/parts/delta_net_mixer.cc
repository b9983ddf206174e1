#include "models/parts/delta_net_mixer.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "models/parts/state_parts.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/states/causal_conv.h"

namespace headrace {
namespace {

// Of tensors whose rows lie key head by key head, each with so many rows of each of several things:
// the rows of the first thing of all heads, then those of the next.
std::vector<int32_t> thing_by_thing(int32_t key_heads, std::initializer_list<int32_t> rows) {
  const int32_t of_head = std::accumulate(rows.begin(), rows.end(), 0);
  std::vector<int32_t> order;
  int32_t before = 0;
  for (const int32_t count : rows) {
    for (int32_t head = 0; head < key_heads; ++head) {
      for (int32_t r = 0; r < count; ++r) order.push_back(head * of_head + before + r);
    }
    before += count;
  }
  return order;
}

class DeltaNetMixer final : public Mixer {
 public:
  DeltaNetMixer(const DeltaNetSpec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}

  Status load(LayerTensors& tensors) override {
    const DeltaHeads& heads = spec_.heads;
    HR_ASSIGN_OR_RETURN(in_, tensors.matrix(projection()));
    HR_ASSIGN_OR_RETURN(gates_, tensors.matrix(gates()));
    HR_ASSIGN_OR_RETURN(taps_, load_conv_taps(tensors, "ssm_conv1d", heads.qkv(), spec_.taps));
    HR_ASSIGN_OR_RETURN(dt_bias_, tensors.vector("ssm_dt.bias", heads.value_heads));
    HR_ASSIGN_OR_RETURN(rate_, load_rates(tensors, Shape{heads.value_heads}, spec_.rate_is_log));
    HR_ASSIGN_OR_RETURN(norm_, tensors.vector("ssm_norm.weight", heads.value_dim));
    HR_ASSIGN_OR_RETURN(
        out_, tensors.matrix({.rows = {{"ssm_out", hidden_}}, .columns = heads.values()}));
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override {
    return {&in_.weight, &gates_.weight, &out_.weight};
  }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override { return conv_bytes() + spec_.heads.state_bytes(); }
  // Gates are f32 beside rows of 16 bits, too.
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    if (in_place) return {projected_width(), gates_width()};
    return {projected_width(), 2 * gates_width(), spec_.heads.qkv()};
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max({linear_workspace_bytes(load.rows, in_.weight),
                     linear_workspace_bytes(load.rows, gates_.weight),
                     linear_workspace_bytes(load.rows, out_.weight)});
  }
  Status check_device(const DeviceTraits& device, DType) const override {
    const auto keys_fit = [&](int64_t key_dim) {
      DeltaRuleArgs args;
      args.heads = spec_.heads;
      args.heads.key_dim = static_cast<int32_t>(key_dim);
      return delta_rule_kernels().find(device, args) != nullptr;
    };
    if (keys_fit(spec_.heads.key_dim)) return check_taps_on(device, spec_.taps);
    return unsupported(
        fmt::format("keys of gated DeltaNet of {} are larger than kernels on a GPU take, which is "
                    "{}: use --device cpu",
                    spec_.heads.key_dim, largest_that_fits(spec_.heads.key_dim, keys_fit)));
  }

  void run(const MixerRun& run) const override {
    const DeltaHeads& heads = spec_.heads;
    OpContext& context = run.branch.context();
    const int64_t rows = run.branch.rows();
    const TensorView projected = run.scratch.rows(kProjected, rows, projected_width());
    const TensorView gates(run.scratch.rows(kGates, rows, gates_width()).data, DType::kF32,
                           Shape{rows, gates_width()});
    const ConstTensorView x = run.branch.input();
    multiply(context, in_, x, projected);
    multiply(context, gates_, x, gates);
    const TensorView made = column_range(projected, 0, heads.qkv());
    const TensorView qkv =
        run.scratch.in_place() ? made : run.scratch.rows(kQkv, rows, heads.qkv());
    causal_conv(context, {.x = made,
                          .before = {},
                          .behind = {},
                          .weight = taps_.data(),
                          .bias = nullptr,
                          .taps = spec_.taps,
                          .activation = ConvActivation::kSilu,
                          .states = run.states,
                          .out = qkv});
    const TensorView out = column_range(qkv, 2 * heads.keys(), heads.values());  // v's place
    delta_rule(context, {.heads = heads,
                         .qkv = qkv,
                         .gates = gates,
                         .z = column_range(projected, heads.qkv(), heads.values()),
                         .rate = rate_.data(),
                         .dt_bias = dt_bias_.data(),
                         .norm = norm_.data(),
                         .norm_eps = spec_.norm_eps,
                         .states = run.states.behind(conv_bytes()),
                         .out = out});
    run.branch.end_with(out_, out);
  }

 private:
  enum Area : size_t { kProjected, kGates, kQkv };  // of scratch memory

  int64_t gates_width() const { return int64_t{2} * spec_.heads.value_heads; }
  int64_t projected_width() const { return spec_.heads.qkv() + spec_.heads.values(); }
  int64_t conv_bytes() const {
    return aligned_state_bytes(causal_conv_state_bytes(spec_.taps, spec_.heads.qkv()));
  }

  MatrixStack projection() const {
    const DeltaHeads& heads = spec_.heads;
    MatrixStack stack{.rows = {}, .columns = hidden_};
    if (spec_.tensors == DeltaTensors::kSeparate) {
      stack.rows = {{"attn_qkv", heads.qkv()}, {"attn_gate", heads.values()}};
      return stack;
    }
    const int32_t values = heads.value_heads / heads.key_heads * heads.value_dim;
    stack.rows = {
        {"ssm_in", projected_width(),
         thing_by_thing(heads.key_heads, {heads.key_dim, heads.key_dim, values, values})}};
    return stack;
  }

  // A rounding of a decay is felt by all rows behind it.
  MatrixStack gates() const {
    const DeltaHeads& heads = spec_.heads;
    MatrixStack stack{.rows = {}, .columns = hidden_, .exact = true};
    if (spec_.tensors == DeltaTensors::kSeparate) {
      stack.rows = {{"ssm_beta", heads.value_heads}, {"ssm_alpha", heads.value_heads}};
      return stack;
    }
    const int32_t of_key = heads.value_heads / heads.key_heads;
    stack.rows = {{"ssm_ba", int64_t{2} * heads.value_heads,
                   thing_by_thing(heads.key_heads, {of_key, of_key})}};
    return stack;
  }

  const DeltaNetSpec spec_;
  const int64_t hidden_;
  LinearLayer in_;               // [qkv + values, D]: q, k, v, z
  LinearLayer gates_;            // [2 value heads, D]: b, a
  DeviceVector taps_;            // [taps, qkv]
  DeviceVector dt_bias_, rate_;  // [value heads]
  DeviceVector norm_;            // [dv]
  LinearLayer out_;              // [D, values]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const DeltaNetSpec& spec, int64_t hidden) {
  return std::make_unique<DeltaNetMixer>(spec, hidden);
}

}  // namespace headrace
