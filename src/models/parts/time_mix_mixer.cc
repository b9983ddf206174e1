#include "models/parts/time_mix_mixer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "models/kernel_sizes.h"
#include "models/parts/state_parts.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/states/token_shift.h"

namespace headrace {
namespace {

class TimeMixMixer final : public Mixer {
 public:
  TimeMixMixer(const TimeMixSpec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}

  Status split(const ShardSpec& /*shard*/) override { return ok_status(); }

  Status load(LayerTensors& tensors) override {
    HR_RETURN_IF_ERROR(load_mixes(tensors));
    const struct {
      const char* name;
      LinearLayer& layer;
    } square[] = {{"time_mix_receptance", r_},
                  {"time_mix_key", k_},
                  {"time_mix_value", v_},
                  {"time_mix_output", out_}};
    for (const auto& each : square) {
      HR_ASSIGN_OR_RETURN(each.layer,
                          tensors.matrix({.rows = {{each.name, hidden_}}, .columns = hidden_}));
    }
    // A rounding of a decay is felt by all rows behind it, as one of what a state takes out.
    HR_RETURN_IF_ERROR(load_low_rank(tensors, 'w', spec_.decay_rank, /*exact=*/true, decay_));
    HR_RETURN_IF_ERROR(load_low_rank(tensors, 'a', spec_.rate_rank, /*exact=*/true, rate_));
    HR_RETURN_IF_ERROR(load_low_rank(tensors, 'g', spec_.gate_rank, /*exact=*/false, gate_));
    if (!spec_.first) {
      HR_RETURN_IF_ERROR(
          load_low_rank(tensors, 'v', spec_.value_rank, /*exact=*/false, value_gate_));
      HR_ASSIGN_OR_RETURN(v0_, tensors.vector("time_mix_v0.weight", hidden_));
    }
    const struct {
      const char* name;
      DeviceVector& vector;
    } vectors[] = {{"time_mix_w0.weight", w0_},     {"time_mix_a0.weight", a0_},
                   {"time_mix_k_k.weight", k_k_},   {"time_mix_k_a.weight", k_a_},
                   {"time_mix_r_k.weight", r_k_},   {"time_mix_ln.weight", norm_},
                   {"time_mix_ln.bias", norm_bias_}};
    for (const auto& each : vectors) {
      HR_ASSIGN_OR_RETURN(each.vector, tensors.vector(each.name, hidden_));
    }
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&r_.weight, &k_.weight, &v_.weight};
    for (LowRank* low : {&decay_, &rate_, &gate_, &value_gate_}) {
      if (spec_.first && low == &value_gate_) continue;
      all.push_back(&low->in.weight);
      all.push_back(&low->out.weight);
    }
    all.push_back(&out_.weight);
    return all;
  }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override { return shift_bytes() + spec_.heads.state_bytes(); }
  int64_t carried_columns() const override { return hidden_; }
  // What decays and rates are made of is f32 beside rows of 16 bits, too.
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    const int64_t rank =
        std::max({spec_.decay_rank, spec_.rate_rank, spec_.value_rank, spec_.gate_rank});
    return {kSlots * hidden_, (in_place ? 1 : 2) * rank, in_place ? 1 : 4 * hidden_};
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    int64_t bytes = 0;
    for (const LinearLayer* layer :
         {&r_, &k_, &v_, &out_, &decay_.in, &decay_.out, &rate_.in, &rate_.out, &gate_.in,
          &gate_.out, &value_gate_.in, &value_gate_.out}) {
      if (layer->weight.n() == 0) continue;
      bytes = std::max(bytes, linear_workspace_bytes(load.rows, layer->weight));
    }
    return bytes;
  }
  Status check_device(const DeviceTraits& device, DType) const override {
    const auto heads_fit = [&](int64_t head_dim) {
      Wkv7Args args{};
      args.heads = {.heads = spec_.heads.heads, .head_dim = static_cast<int32_t>(head_dim)};
      return wkv7_kernels().find(device, args) != nullptr;
    };
    if (heads_fit(spec_.heads.head_dim)) return ok_status();
    return unsupported(fmt::format(
        "heads of RWKV of {} are larger than kernels on a GPU take, which is {}: use --device cpu",
        spec_.heads.head_dim, largest_that_fits(spec_.heads.head_dim, heads_fit)));
  }

  void run(const MixerRun& run) const override {
    OpContext& context = run.branch.context();
    const int64_t rows = run.branch.rows();
    const TensorView slots = run.scratch.rows(kRows, rows, kSlots * hidden_);
    const auto slot = [&](Slot index) { return column_range(slots, index * hidden_, hidden_); };
    token_shift(context, {.x = run.branch.input(),
                          .mix = mix_.data(),
                          .mixes = kMixes,
                          .states = run.states,
                          .out = column_range(slots, 0, kMixes * hidden_)});
    // Each result lies over a mix that is no longer read, or where results in f32 need more room
    // beside these.
    const TensorView first_v = run.carried.row_range(0, rows);
    const TensorView r = slot(kSpare), k = slot(kForR);
    const TensorView v = spec_.first ? first_v : slot(kForK);
    const TensorView g = slot(kForG), v_gate = slot(kForV);
    const TensorView w = run.scratch.in_place() ? slot(kForW) : f32_columns(run, 0);
    const TensorView a = run.scratch.in_place() ? slot(kForA) : f32_columns(run, hidden_);
    multiply(context, r_, slot(kForR), r);
    multiply(context, k_, slot(kForK), k);
    multiply(context, v_, slot(kForV), v);
    multiply_low(run, decay_, Activation::kTanh, slot(kForW), w);
    multiply_low(run, rate_, std::nullopt, slot(kForA), a);
    multiply_low(run, gate_, Activation::kSigmoid, g, g);
    if (!spec_.first) multiply_low(run, value_gate_, std::nullopt, v_gate, v_gate);
    wkv7(context, {.heads = spec_.heads,
                   .r = r,
                   .w = w,
                   .k = k,
                   .v = v,
                   .a = a,
                   .g = g,
                   .v_first = spec_.first ? ConstTensorView() : ConstTensorView(first_v),
                   .v_gate = spec_.first ? ConstTensorView() : ConstTensorView(v_gate),
                   .w0 = w0_.data(),
                   .a0 = a0_.data(),
                   .v0 = v0_.data(),
                   .k_k = k_k_.data(),
                   .k_a = k_a_.data(),
                   .r_k = r_k_.data(),
                   .norm = norm_.data(),
                   .norm_bias = norm_bias_.data(),
                   .norm_eps = spec_.norm_eps,
                   .states = run.states.behind(shift_bytes()),
                   .out = r});
    run.branch.end_with(out_, r);
  }

 private:
  enum Area : size_t { kRows, kLow, kF32 };  // of scratch memory
  // Of kRows: mixes in the order of time_mix_lerp_fused.
  enum Slot : int64_t { kForR, kForW, kForK, kForV, kForA, kForG, kSpare, kSlots };
  static constexpr int32_t kMixes = 6;

  struct LowRank {
    LinearLayer in;   // [rank, D]
    LinearLayer out;  // [D, rank]
  };

  int64_t shift_bytes() const { return aligned_state_bytes(token_shift_state_bytes(hidden_)); }

  Status load_mixes(LayerTensors& tensors) {
    std::vector<float> mixes;
    if (spec_.shifts_joined) {
      HR_ASSIGN_OR_RETURN(mixes,
                          tensors.values("time_mix_lerp_fused.weight", Shape{kMixes, hidden_}));
    }
    for (const char of : std::string_view(spec_.shifts_joined ? "" : "rwkvag")) {
      HR_ASSIGN_OR_RETURN(
          const std::vector<float> mix,
          tensors.values(std::string("time_mix_lerp_") + of + ".weight", Shape{hidden_}));
      mixes.insert(mixes.end(), mix.begin(), mix.end());
    }
    HR_ASSIGN_OR_RETURN(mix_, tensors.made_vector(mixes));
    return ok_status();
  }

  Status load_low_rank(LayerTensors& tensors, char of, int32_t rank, bool exact, LowRank& low) {
    const std::string name = std::string("time_mix_") + of;
    HR_ASSIGN_OR_RETURN(
        low.in, tensors.matrix({.rows = {{name + "1", rank}}, .columns = hidden_, .exact = exact}));
    HR_ASSIGN_OR_RETURN(
        low.out,
        tensors.matrix({.rows = {{name + "2", hidden_}}, .columns = rank, .exact = exact}));
    return ok_status();
  }

  // The result may lie over the input. What is between the matrices is of the result's type.
  void multiply_low(const MixerRun& run, const LowRank& low, std::optional<Activation> between,
                    const TensorView& from, const TensorView& to) const {
    OpContext& context = run.branch.context();
    const int64_t rank = low.in.weight.n();
    const TensorView inner{run.scratch.rows(kLow, from.rows(), rank).data, to.dtype,
                           Shape{from.rows(), rank}};
    multiply(context, low.in, from, inner);
    if (between) activation(context, {.x = inner, .activation = *between, .out = inner});
    multiply(context, low.out, inner, to);
  }

  // Columns [first, first + D) of the area of results in f32.
  TensorView f32_columns(const MixerRun& run, int64_t first) const {
    const int64_t rows = run.branch.rows();
    const TensorView all{run.scratch.rows(kF32, rows, 2 * hidden_).data, DType::kF32,
                         Shape{rows, 2 * hidden_}};
    return column_range(all, first, hidden_);
  }

  const TimeMixSpec spec_;
  const int64_t hidden_;
  DeviceVector mix_;                          // [kMixes, D]
  LinearLayer r_, k_, v_, out_;               // [D, D]
  LowRank decay_, rate_, gate_, value_gate_;  // the last but in the first layer
  DeviceVector w0_, a0_, v0_;                 // [D]; v0 as value_gate_
  DeviceVector k_k_, k_a_, r_k_;              // [D]
  DeviceVector norm_, norm_bias_;             // [D]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const TimeMixSpec& spec, int64_t hidden) {
  return std::make_unique<TimeMixMixer>(spec, hidden);
}

}  // namespace headrace
