#include "models/parts/dense_feed_forward.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "models/parts/branch_output.h"
#include "models/row_views.h"
#include "ops/linear/norm_linear.h"
#include "ops/rows/cut_gates.h"
#include "ops/rows/rms_norm.h"

namespace headrace {
namespace {

class DenseFeedForward final : public FeedForward {
 public:
  DenseFeedForward(const DenseSpec& spec, int64_t hidden)
      : spec_(spec), hidden_(hidden), widths_(spec.width, 1, 1), down_(spec.width, hidden) {}

  // Sparse gates and norms need whole rows: every rank has all of them.
  Status split(const ShardSpec& shard) override {
    if (is_sparse() || spec_.sub_norm) return ok_status();
    if (spec_.width < shard.ranks) {
      return unsupported(
          fmt::format("a feed-forward network of {} columns cannot be split over {} ranks: lower "
                      "--tensor-parallel-size",
                      spec_.width, shard.ranks));
    }
    widths_ = inner_shares(spec_.width, shard.ranks);
    down_.split(shard, widths_);
    split_ = true;
    if (shard.all_on_one) {
      widths_ = Shares(spec_.width, 1, 1);
    } else {
      rank_ = shard.rank;
    }
    return ok_status();
  }

  Status load(LayerTensors& tensors) override {
    HR_ASSIGN_OR_RETURN(gate_up_, tensors.matrix(gate_up_stack()));
    if (spec_.activation == Activation::kXielu) HR_RETURN_IF_ERROR(load_xielu(tensors));
    if (spec_.sub_norm) {
      HR_ASSIGN_OR_RETURN(sub_norm_, tensors.vector("ffn_sub_norm.weight", spec_.width));
    }
    return down_.load(tensors, name("ffn_down"), spec_.bias);
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&gate_up_.weight};
    for (LinearWeight* const down : down_.matrices()) all.push_back(down);
    return all;
  }

  // In place, activated rows lie over their gates, unless other ranks' rows come beside them.
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    if (in_place && !split_) return {gate_up_width()};
    return {gate_up_width(), down_.input_width()};
  }

  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max(linear_workspace_bytes(load.rows, gate_up_.weight),
                    down_.op_workspace_bytes(load.rows));
  }

  Status check_device(const DeviceTraits& device, DType /*activations*/) const override {
    return check_gates("networks", device, spec_.limits, spec_.swish);
  }

  void run(const FeedForwardRun& run) const override {
    const int64_t rows = run.branch.rows();
    const TensorView gate_up = run.scratch.rows(kGateUp, rows, gate_up_width());
    const TensorView all = run.scratch.in_place() && !split_
                               ? column_range(gate_up, 0, own_width())
                               : run.scratch.rows(kActivated, rows, down_.input_width());
    const TensorView activated = down_.own_columns(all);
    const GatedActivationArgs gates{
        .gate_up = gate_up, .activation = spec_.activation, .out = activated, .swish = spec_.swish};
    if (is_gated() && !is_cut() && !spec_.sub_norm && down_.ends_with_gates(run.branch, gates)) {
      run.branch.multiply_input(gate_up_, gate_up);
      return down_.end(run.branch, gates);
    }
    if (is_gated()) {
      multiply_gated(run.branch, gate_up, activated);
    } else {
      run.branch.multiply_input(gate_up_, gate_up);
      activation(run.branch.context(),
                 {.x = gate_up, .activation = spec_.activation, .out = activated, .xielu = xielu_});
    }
    if (spec_.sub_norm) {
      rms_norm(run.branch.context(), {.x = activated,
                                      .residual = {},
                                      .weight = sub_norm_.data(),
                                      .eps = spec_.norm_eps,
                                      .out = activated});
    }
    down_.end(run.branch, all);
  }

 private:
  // Areas of scratch memory.
  enum Area : size_t { kGateUp, kActivated };

  std::string name(const char* stem) const { return std::string(stem) + spec_.name_end; }
  bool is_sparse() const { return !std::isnan(spec_.gate_cutoff); }
  bool is_cut() const { return is_sparse() || spec_.limits.any(); }
  bool is_gated() const { return spec_.tensors != DenseTensors::kPlain; }
  int64_t own_width() const { return widths_.count(rank_); }
  int64_t gate_up_width() const { return (is_gated() ? 2 : 1) * own_width(); }

  MatrixStack gate_up_stack() const {
    MatrixStack stack{.columns = hidden_, .bias = spec_.bias, .adapts = true};
    // This rank's rows, of those from `first` on.
    const auto add = [&](const char* stem, int64_t first, int64_t in_file) {
      MatrixStack::Rows& rows = stack.rows.emplace_back(MatrixStack::Rows{name(stem), in_file});
      if (own_width() < in_file) rows.take(first + widths_.first(rank_), own_width());
    };
    switch (spec_.tensors) {
      case DenseTensors::kGated:
        add("ffn_gate", 0, spec_.width);
        add("ffn_up", 0, spec_.width);
        break;
      case DenseTensors::kGatedFused:
        if (split_) {
          add("ffn_up", 0, 2 * int64_t{spec_.width});
          add("ffn_up", spec_.width, 2 * int64_t{spec_.width});
        } else {
          stack.rows.push_back({name("ffn_up"), gate_up_width()});
        }
        break;
      case DenseTensors::kPlain:
        add("ffn_up", 0, spec_.width);
        break;
    }
    return stack;
  }

  void multiply_gated(ResidualBranch& branch, const TensorView& gate_up,
                      const TensorView& activated) const {
    GatedLinearArgs gated{.x = {},
                          .weight = &gate_up_.weight,
                          .bias = gate_up_.bias.data(),
                          .activation = spec_.activation,
                          .gate_up = gate_up,
                          .y = activated};
    // What adapters add comes before the gates.
    if (is_cut() || branch.adapts(gate_up_) || !spec_.swish.is_usual()) {
      branch.multiply_input(gate_up_, gate_up);
      if (is_sparse()) {
        cut_gates(branch.context(),
                  {.x = column_range(gate_up, 0, own_width()), .cutoff = spec_.gate_cutoff});
      }
      limit_gates(branch.context(), spec_.limits, gate_up);
      gated_activation(branch.context(), {.gate_up = gate_up,
                                          .activation = spec_.activation,
                                          .out = activated,
                                          .swish = spec_.swish});
    } else if (const auto norm = branch.joining_norm()) {
      gated.x = norm->out;
      norm_gated_linear(branch.context(), {.norm = *norm, .gated = gated});
    } else {
      gated.x = branch.input();
      gated_linear(branch.context(), gated);
    }
  }

  // A file has what the softplus of gives two of the factors.
  Status load_xielu(LayerTensors& tensors) {
    const struct {
      const char* name;
      float& value;
    } parameters[] = {{"ffn_act_alpha_p", xielu_.p},
                      {"ffn_act_alpha_n", xielu_.n},
                      {"ffn_act_beta", xielu_.b},
                      {"ffn_act_eps", xielu_.e}};
    for (const auto& each : parameters) {
      HR_ASSIGN_OR_RETURN(const std::vector<float> value, tensors.values(each.name, Shape{1}));
      each.value = value.front();
    }
    const auto softplus = [](float x) {
      return static_cast<float>(std::log1p(std::exp(double{x})));
    };
    xielu_.p = softplus(xielu_.p);
    xielu_.n = xielu_.b + softplus(xielu_.n);
    return ok_status();
  }

  const DenseSpec spec_;
  const int64_t hidden_;
  Shares widths_;  // of the ranks
  bool split_ = false;
  int32_t rank_ = 0;
  XieluParameters xielu_;
  DeviceVector sub_norm_;  // [F] or empty
  LinearLayer gate_up_;    // [2F, D]; [F, D] of kPlain; F this rank's
  BranchOutput down_;      // [D, F]
};

}  // namespace

std::unique_ptr<FeedForward> make_part(const DenseSpec& spec, int64_t hidden) {
  return std::make_unique<DenseFeedForward>(spec, hidden);
}

}  // namespace headrace
