#include "models/parts/delta_net_mixer.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "models/parts/branch_output.h"
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
  DeltaNetMixer(const DeltaNetSpec& spec, int64_t hidden)
      : spec_(spec), hidden_(hidden), whole_(spec.heads), out_(whole_.values(), hidden) {}

  // A rank has key heads with their value heads, and what is kept of these. Fewer key heads than
  // ranks are computed by every rank, and so are tiled heads, of which those of a key head are no
  // neighbours.
  Status split(const ShardSpec& shard) override {
    if (whole_.tiled || whole_.key_heads < shard.ranks) return ok_status();
    const Shares keys(whole_.key_heads, shard.ranks, 1);
    out_.split(shard, keys.times(int64_t{values_of_key()} * whole_.value_dim));
    is_split_ = true;
    if (shard.all_on_one) return ok_status();
    key_first_ = keys.first(shard.rank);
    spec_.heads.key_heads = static_cast<int32_t>(keys.count(shard.rank));
    spec_.heads.value_heads = spec_.heads.key_heads * values_of_key();
    return ok_status();
  }

  Status load(LayerTensors& tensors) override {
    const DeltaHeads& heads = spec_.heads;
    HR_ASSIGN_OR_RETURN(in_, tensors.matrix(projection()));
    HR_ASSIGN_OR_RETURN(gates_, tensors.matrix(gates()));
    HR_RETURN_IF_ERROR(load_taps(tensors));
    HR_ASSIGN_OR_RETURN(dt_bias_, tensors.vector("ssm_dt.bias", whole_.value_heads));
    HR_ASSIGN_OR_RETURN(rate_, load_rates(tensors, Shape{whole_.value_heads}, spec_.rate_is_log));
    HR_ASSIGN_OR_RETURN(norm_, tensors.vector("ssm_norm.weight", heads.value_dim));
    return out_.load(tensors, MatrixStack::Rows{"ssm_out", hidden_}, /*bias=*/false);
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&in_.weight, &gates_.weight};
    for (LinearWeight* const out : out_.matrices()) all.push_back(out);
    return all;
  }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override { return conv_bytes() + spec_.heads.state_bytes(); }
  // Gates are f32 beside rows of 16 bits, too.
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    std::vector<int64_t> columns = {projected_width(), in_place ? gates_width() : 2 * gates_width(),
                                    in_place ? 1 : spec_.heads.qkv()};
    if (is_split_) columns.push_back(out_.input_width());
    return columns;
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max({linear_workspace_bytes(load.rows, in_.weight),
                     linear_workspace_bytes(load.rows, gates_.weight),
                     out_.op_workspace_bytes(load.rows)});
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
    // In v's place; of ranks, in the columns that this one has of a row.
    const TensorView out = is_split_ ? run.scratch.rows(kOut, rows, out_.input_width())
                                     : column_range(qkv, 2 * heads.keys(), heads.values());
    delta_rule(context, {.heads = heads,
                         .qkv = qkv,
                         .gates = gates,
                         .z = column_range(projected, heads.qkv(), heads.values()),
                         .rate = rate_.data() + value_first(),
                         .dt_bias = dt_bias_.data() + value_first(),
                         .norm = norm_.data(),
                         .norm_eps = spec_.norm_eps,
                         .sigmoid_gates = spec_.sigmoid_gates,
                         .beta_scale = spec_.beta_scale,
                         .states = run.states.behind(conv_bytes()),
                         .out = out_.own_columns(out)});
    out_.end(run.branch, out);
  }

 private:
  enum Area : size_t { kProjected, kGates, kQkv, kOut };  // of scratch memory

  int32_t values_of_key() const { return whole_.value_heads / whole_.key_heads; }
  int64_t value_first() const { return key_first_ * values_of_key(); }
  // Of q, k and v of all ranks.
  std::array<ChannelRange, 3> qkv_channels() const {
    const DeltaHeads& heads = spec_.heads;
    const int64_t key = key_first_ * heads.key_dim, value = value_first() * heads.value_dim;
    return {ChannelRange{key, heads.keys()}, ChannelRange{whole_.keys() + key, heads.keys()},
            ChannelRange{2 * whole_.keys() + value, heads.values()}};
  }
  int64_t gates_width() const { return int64_t{2} * spec_.heads.value_heads; }
  int64_t projected_width() const { return spec_.heads.qkv() + spec_.heads.values(); }
  int64_t conv_bytes() const {
    return aligned_state_bytes(causal_conv_state_bytes(spec_.taps, spec_.heads.qkv()));
  }

  MatrixStack projection() const {
    const DeltaHeads& heads = spec_.heads;
    MatrixStack stack{.rows = {}, .columns = hidden_};
    const int32_t values = values_of_key() * heads.value_dim;  // of a key head
    if (spec_.tensors == DeltaTensors::kByHead) {
      MatrixStack::Rows rows{
          "ssm_in", projected_width(),
          thing_by_thing(heads.key_heads, {heads.key_dim, heads.key_dim, values, values})};
      stack.rows = {of_keys(std::move(rows))};
      return stack;
    }
    if (spec_.tensors == DeltaTensors::kApart) {
      stack.rows = {of_keys({"attn_q", heads.keys()}), of_keys({"attn_k", heads.keys()}),
                    of_keys({"attn_v", heads.values()}), of_keys({"attn_gate", heads.values()})};
      return stack;
    }
    if (!is_split_) {
      stack.rows = {{"attn_qkv", heads.qkv()}, {"attn_gate", heads.values()}};
      return stack;
    }
    for (const auto& [first, count] : qkv_channels()) {
      stack.rows.push_back({"attn_qkv", count, {}, first, whole_.qkv()});
    }
    stack.rows.push_back(of_keys({"attn_gate", heads.values()}));
    return stack;
  }

  // Of q, k and v in one tensor, or in one each.
  Status load_taps(LayerTensors& tensors) {
    const std::array<ChannelRange, 3> own = qkv_channels();
    if (spec_.tensors != DeltaTensors::kApart) {
      HR_ASSIGN_OR_RETURN(
          taps_, load_conv_taps(tensors, "ssm_conv1d", Shape{whole_.qkv(), spec_.taps}, own));
      return ok_status();
    }
    constexpr std::array kNames = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight",
                                   "ssm_conv1d_v.weight"};
    std::array<std::vector<float>, 3> of_file;  // [channels, taps]
    const std::array<int64_t, 3> before = {0, whole_.keys(), 2 * whole_.keys()};
    for (size_t part = 0; part < kNames.size(); ++part) {
      const int64_t channels = part < 2 ? whole_.keys() : whole_.values();
      HR_ASSIGN_OR_RETURN(of_file[part], tensors.values(kNames[part], Shape{channels, spec_.taps}));
    }
    std::vector<float> by_tap;
    for (int64_t j = 0; j < spec_.taps; ++j) {
      for (size_t part = 0; part < own.size(); ++part) {
        const int64_t first = own[part].first - before[part];
        for (int64_t c = first; c < first + own[part].count; ++c) {
          by_tap.push_back(of_file[part][static_cast<size_t>(c * spec_.taps + j)]);
        }
      }
    }
    HR_ASSIGN_OR_RETURN(taps_, tensors.made_vector(by_tap));
    return ok_status();
  }

  // A rounding of a decay is felt by all rows behind it.
  MatrixStack gates() const {
    const DeltaHeads& heads = spec_.heads;
    MatrixStack stack{.rows = {}, .columns = hidden_, .exact = true};
    if (spec_.tensors == DeltaTensors::kSeparate || spec_.tensors == DeltaTensors::kApart) {
      stack.rows = {of_keys({"ssm_beta", heads.value_heads}),
                    of_keys({"ssm_alpha", heads.value_heads})};
      return stack;
    }
    stack.rows = {of_keys({"ssm_ba", int64_t{2} * heads.value_heads,
                           thing_by_thing(heads.key_heads, {values_of_key(), values_of_key()})})};
    return stack;
  }

  // `rows` are those of this rank's key heads, of a tensor in which each key head has as many.
  MatrixStack::Rows of_keys(MatrixStack::Rows rows) const {
    const int64_t each = rows.count / spec_.heads.key_heads;
    rows.first = key_first_ * each;
    rows.of = whole_.key_heads * each;
    return rows;
  }

  DeltaNetSpec spec_;  // with this rank's heads
  const int64_t hidden_;
  const DeltaHeads whole_;  // of all ranks
  bool is_split_ = false;
  int64_t key_first_ = 0;        // of this rank's key heads
  LinearLayer in_;               // [qkv + values, D]: q, k, v, z
  LinearLayer gates_;            // [2 value heads, D]: b, a
  DeviceVector taps_;            // [taps, qkv]
  DeviceVector dt_bias_, rate_;  // [value heads of all ranks]
  DeviceVector norm_;            // [dv]
  BranchOutput out_;             // [D, values]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const DeltaNetSpec& spec, int64_t hidden) {
  return std::make_unique<DeltaNetMixer>(spec, hidden);
}

}  // namespace headrace
