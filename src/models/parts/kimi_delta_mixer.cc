#include "models/parts/kimi_delta_mixer.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "models/parts/branch_output.h"
#include "models/parts/state_parts.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/states/causal_conv.h"

namespace headrace {
namespace {

// Queries, keys and values, each of a tensor of its own.
constexpr std::array kProjections = {"attn_q", "attn_k", "attn_v"};
constexpr std::array kConvolutions = {"ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v"};

class KimiDeltaMixer final : public Mixer {
 public:
  KimiDeltaMixer(const KimiDeltaSpec& spec, int64_t hidden)
      : spec_(spec), hidden_(hidden), whole_(spec.heads), out_(whole_.columns(), hidden) {}

  // A rank has heads and what is kept of these. Fewer heads than ranks are computed by every rank.
  Status split(const ShardSpec& shard) override {
    if (whole_.count < shard.ranks) return ok_status();
    const Shares heads(whole_.count, shard.ranks, 1);
    out_.split(shard, heads.times(whole_.dim));
    is_split_ = true;
    if (shard.all_on_one) return ok_status();
    head_first_ = heads.first(shard.rank);
    spec_.heads.count = static_cast<int32_t>(heads.count(shard.rank));
    return ok_status();
  }

  Status load(LayerTensors& tensors) override {
    MatrixStack in{.rows = {}, .columns = hidden_};
    for (const char* const name : kProjections) in.rows.push_back(of_heads(name, whole_.dim));
    if (spec_.low_rank_gates) {
      in.rows.push_back({"ssm_g_a", whole_.dim});
    } else {
      in.rows.push_back(of_heads("attn_gate", whole_.dim));
    }
    HR_ASSIGN_OR_RETURN(in_, tensors.matrix(in));
    HR_RETURN_IF_ERROR(load_taps(tensors));
    // A rounding of a decay is felt by all rows behind it.
    HR_ASSIGN_OR_RETURN(
        gates_,
        tensors.matrix({.rows = {spec_.low_rank_gates ? MatrixStack::Rows{"ssm_f_a", whole_.dim}
                                                      : of_heads("ssm_f_a", whole_.dim),
                                 of_heads("ssm_beta", 1)},
                        .columns = hidden_,
                        .exact = true}));
    HR_ASSIGN_OR_RETURN(rate_, load_rates(tensors, Shape{whole_.count}, spec_.rate_is_log));
    HR_ASSIGN_OR_RETURN(dt_bias_, tensors.vector("ssm_dt.bias", whole_.columns()));
    if (spec_.low_rank_gates) {
      HR_ASSIGN_OR_RETURN(forget_, tensors.matrix({.rows = {of_heads("ssm_f_b", whole_.dim)},
                                                   .columns = whole_.dim,
                                                   .exact = true}));
      HR_ASSIGN_OR_RETURN(output_gate_, tensors.matrix({.rows = {of_heads("ssm_g_b", whole_.dim)},
                                                        .columns = whole_.dim}));
    }
    HR_ASSIGN_OR_RETURN(norm_, tensors.vector("ssm_norm.weight", whole_.dim));
    return out_.load(tensors, MatrixStack::Rows{"attn_output", hidden_}, /*bias=*/false);
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&in_.weight, &gates_.weight};
    if (spec_.low_rank_gates) all.insert(all.end(), {&forget_.weight, &output_gate_.weight});
    for (LinearWeight* const out : out_.matrices()) all.push_back(out);
    return all;
  }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override { return conv_bytes() + spec_.heads.state_bytes(); }
  // What decays and b are made of is f32 beside rows of 16 bits, too.
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    const int64_t columns = spec_.heads.columns(), of_f32 = in_place ? 1 : 2;
    const int64_t apart = spec_.low_rank_gates ? columns : 1;
    return {3 * columns + gate_width(),
            of_f32 * gates_width(),
            of_f32 * apart,
            apart,
            in_place ? 1 : 3 * columns,
            is_split_ ? out_.input_width() : 1};
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    int64_t bytes = out_.op_workspace_bytes(load.rows);
    for (const LinearLayer* layer : {&in_, &gates_, &forget_, &output_gate_}) {
      if (layer->weight.n() == 0) continue;
      bytes = std::max(bytes, linear_workspace_bytes(load.rows, layer->weight));
    }
    return bytes;
  }
  Status check_device(const DeviceTraits& device, DType) const override {
    const auto heads_fit = [&](int64_t dim) {
      KimiDeltaArgs args;
      args.heads = {.count = spec_.heads.count, .dim = static_cast<int32_t>(dim)};
      return kimi_delta_kernels().find(device, args) != nullptr;
    };
    if (heads_fit(spec_.heads.dim)) return check_taps_on(device, spec_.taps);
    return unsupported(
        fmt::format("heads of Kimi Delta Attention of {} are larger than kernels on a GPU take, "
                    "which is {}: use --device cpu",
                    spec_.heads.dim, largest_that_fits(spec_.heads.dim, heads_fit)));
  }

  void run(const MixerRun& run) const override {
    OpContext& context = run.branch.context();
    const int64_t rows = run.branch.rows(), dim = whole_.dim, columns = spec_.heads.columns();
    const TensorView projected = run.scratch.rows(kProjected, rows, 3 * columns + gate_width());
    const TensorView gates = f32_rows(run, kGates, gates_width());
    const ConstTensorView x = run.branch.input();
    multiply(context, in_, x, projected);
    multiply(context, gates_, x, gates);
    TensorView forget = column_range(gates, 0, gate_width());
    TensorView z = column_range(projected, 3 * columns, gate_width());
    if (spec_.low_rank_gates) {
      const TensorView forget_few = forget, z_few = z;
      forget = f32_rows(run, kForget, columns);
      z = run.scratch.rows(kZ, rows, columns);
      multiply(context, forget_, forget_few, forget);
      multiply(context, output_gate_, z_few, z);
    }
    const TensorView made = column_range(projected, 0, 3 * columns);
    const TensorView qkv =
        run.scratch.in_place() ? made : run.scratch.rows(kQkv, rows, 3 * columns);
    causal_conv(context, {.x = made,
                          .before = {},
                          .behind = {},
                          .weight = taps_.data(),
                          .bias = nullptr,
                          .taps = spec_.taps,
                          .activation = ConvActivation::kSilu,
                          .states = run.states,
                          .out = qkv});
    // In v's place; of ranks, in the columns that this one has of a row.
    const TensorView out = is_split_ ? run.scratch.rows(kOut, rows, out_.input_width())
                                     : column_range(qkv, 2 * columns, columns);
    kimi_delta(context, {.heads = spec_.heads,
                         .qkv = qkv,
                         .forget = forget,
                         .beta = column_range(gates, gate_width(), spec_.heads.count),
                         .z = z,
                         .rate = rate_.data() + head_first_,
                         .dt_bias = dt_bias_.data() + head_first_ * dim,
                         .norm = norm_.data(),
                         .norm_eps = spec_.norm_eps,
                         .decay_floor = spec_.decay_floor,
                         .states = run.states.behind(conv_bytes()),
                         .out = out_.own_columns(out)});
    out_.end(run.branch, out);
  }

 private:
  enum Area : size_t { kProjected, kGates, kForget, kZ, kQkv, kOut };  // of scratch memory

  // Of what decays are made of, and of what output gates are.
  int64_t gate_width() const { return spec_.low_rank_gates ? whole_.dim : spec_.heads.columns(); }
  int64_t gates_width() const { return gate_width() + spec_.heads.count; }
  static TensorView f32_rows(const MixerRun& run, Area area, int64_t columns) {
    const int64_t rows = run.branch.rows();
    return {run.scratch.rows(area, rows, columns).data, DType::kF32, Shape{rows, columns}};
  }
  int64_t conv_bytes() const {
    return aligned_state_bytes(causal_conv_state_bytes(spec_.taps, 3 * spec_.heads.columns()));
  }
  // This rank's, of a tensor with so many rows of each head.
  MatrixStack::Rows of_heads(const char* name, int64_t each) const {
    MatrixStack::Rows rows{name, spec_.heads.count * each};
    rows.first = head_first_ * each;
    rows.of = whole_.count * each;
    return rows;
  }

  // Of the channels of q, k and v, one behind the other: [taps, channels].
  Status load_taps(LayerTensors& tensors) {
    const int64_t columns = spec_.heads.columns(), first = head_first_ * whole_.dim;
    std::vector<float> by_tap(static_cast<size_t>(spec_.taps * 3 * columns));
    for (size_t part = 0; part < kConvolutions.size(); ++part) {
      HR_ASSIGN_OR_RETURN(const std::vector<float> values,
                          tensors.values(std::string(kConvolutions[part]) + ".weight",
                                         Shape{whole_.columns(), spec_.taps}));
      for (int64_t j = 0; j < spec_.taps; ++j) {
        for (int64_t c = 0; c < columns; ++c) {
          const int64_t to = (3 * j + static_cast<int64_t>(part)) * columns + c;
          by_tap[static_cast<size_t>(to)] =
              values[static_cast<size_t>((first + c) * spec_.taps + j)];
        }
      }
    }
    HR_ASSIGN_OR_RETURN(taps_, tensors.made_vector(by_tap));
    return ok_status();
  }

  KimiDeltaSpec spec_;  // with this rank's heads
  const int64_t hidden_;
  const KimiDeltaHeads whole_;  // of all ranks
  bool is_split_ = false;
  int64_t head_first_ = 0;  // of this rank's
  LinearLayer in_;      // [3 columns + gate_width(), D]: q, k, v, and what output gates are made of
  LinearLayer gates_;   // [gates_width(), D]: what decays are made of, b
  LinearLayer forget_;  // [columns, d] of low rank, or empty
  LinearLayer output_gate_;  // likewise
  DeviceVector taps_;        // [taps, 3 columns]
  DeviceVector rate_;        // [heads of all ranks]
  DeviceVector dt_bias_;     // [columns of all ranks]
  DeviceVector norm_;        // [d]
  BranchOutput out_;         // [D, columns]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const KimiDeltaSpec& spec, int64_t hidden) {
  return std::make_unique<KimiDeltaMixer>(spec, hidden);
}

}  // namespace headrace
