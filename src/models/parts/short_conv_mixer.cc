#include "models/parts/short_conv_mixer.h"

#include <algorithm>

#include "models/parts/branch_output.h"
#include "models/parts/state_parts.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/states/causal_conv.h"

namespace headrace {
namespace {

class ShortConvMixer final : public Mixer {
 public:
  ShortConvMixer(const ShortConvSpec& spec, int64_t hidden)
      : spec_(spec), hidden_(hidden), own_{0, hidden}, out_(hidden, hidden) {}

  // A rank has channels, with what is kept of them.
  Status split(const ShardSpec& shard) override {
    const Shares channels = inner_shares(hidden_, shard.ranks);
    out_.split(shard, channels);
    is_split_ = true;
    if (!shard.all_on_one) own_ = {channels.first(shard.rank), channels.count(shard.rank)};
    return ok_status();
  }

  Status load(LayerTensors& tensors) override {
    HR_ASSIGN_OR_RETURN(taps_, load_conv_taps(tensors, "shortconv.conv", Shape{hidden_, spec_.taps},
                                              std::span(&own_, 1)));
    MatrixStack in{.rows = {}, .columns = hidden_};
    for (const int64_t first : {int64_t{0}, hidden_, 2 * hidden_}) {
      if (is_split_) {
        in.rows.push_back({"shortconv.in_proj", own_.count, {}, first + own_.first, 3 * hidden_});
      }
    }
    if (!is_split_) in.rows = {{"shortconv.in_proj", 3 * hidden_}};
    HR_ASSIGN_OR_RETURN(in_, tensors.matrix(in));
    return out_.load(tensors, MatrixStack::Rows{"shortconv.out_proj", hidden_}, /*bias=*/false);
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&in_.weight};
    for (LinearWeight* const out : out_.matrices()) all.push_back(out);
    return all;
  }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override { return causal_conv_state_bytes(spec_.taps, own_.count); }
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    if (in_place && !is_split_) return {3 * own_.count};
    return {3 * own_.count, out_.input_width()};
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max(linear_workspace_bytes(load.rows, in_.weight),
                    out_.op_workspace_bytes(load.rows));
  }
  Status check_device(const DeviceTraits& device, DType) const override {
    return check_taps_on(device, spec_.taps);
  }

  void run(const MixerRun& run) const override {
    const int64_t rows = run.branch.rows();
    const int64_t width = own_.count;
    const TensorView projected = run.scratch.rows(kProjected, rows, 3 * width);
    run.branch.multiply_input(in_, projected);
    const TensorView x = column_range(projected, 2 * width, width);
    const bool over_x = run.scratch.in_place() && !is_split_;
    const TensorView out = over_x ? x : run.scratch.rows(kOut, rows, out_.input_width());
    causal_conv(run.branch.context(), {.x = x,
                                       .before = column_range(projected, 0, width),
                                       .behind = column_range(projected, width, width),
                                       .weight = taps_.data(),
                                       .bias = nullptr,
                                       .taps = spec_.taps,
                                       .states = run.states,
                                       .out = out_.own_columns(out)});
    out_.end(run.branch, out);
  }

 private:
  enum Area : size_t { kProjected, kOut };  // of scratch memory

  const ShortConvSpec spec_;
  const int64_t hidden_;
  bool is_split_ = false;
  ChannelRange own_;   // of this rank, C
  LinearLayer in_;     // [3C, D]: B, C, x
  DeviceVector taps_;  // [taps, C]
  BranchOutput out_;   // [D, D]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const ShortConvSpec& spec, int64_t hidden) {
  return std::make_unique<ShortConvMixer>(spec, hidden);
}

}  // namespace headrace
