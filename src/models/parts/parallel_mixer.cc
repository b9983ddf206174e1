#include "models/parts/parallel_mixer.h"

#include <algorithm>

namespace headrace {
namespace {

class ParallelMixer final : public Mixer {
 public:
  ParallelMixer(const ParallelMixerSpec& spec, int64_t hidden)
      : spec_(spec),
        hidden_(hidden),
        mamba_(make_part(spec.mamba, hidden)),
        attention_(make_part(spec.attention, hidden)) {}

  // Every rank has both whole.
  Status split(const ShardSpec& /*shard*/) override { return ok_status(); }

  Status load(LayerTensors& tensors) override {
    HR_RETURN_IF_ERROR(attention_->load(tensors));
    return mamba_->load(tensors);
  }
  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = mamba_->matrices();
    for (LinearWeight* const matrix : attention_->matrices()) all.push_back(matrix);
    return all;
  }
  LayerKv kept() const override { return attention_->kept(); }
  int64_t state_bytes() const override { return mamba_->state_bytes(); }
  int32_t query_heads() const override { return attention_->query_heads(); }

  // The input, which the first of the two would write over, and what either takes.
  std::vector<int64_t> scratch_columns(bool in_place) const override {
    std::vector<int64_t> columns = {hidden_};
    for (const Mixer* const part : {mamba_.get(), attention_.get()}) {
      const std::vector<int64_t> own = part->scratch_columns(in_place);
      columns.resize(std::max(columns.size(), own.size() + 1));
      for (size_t i = 0; i < own.size(); ++i) columns[i + 1] = std::max(columns[i + 1], own[i]);
    }
    return columns;
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max(mamba_->op_workspace_bytes(load), attention_->op_workspace_bytes(load));
  }
  Status check_device(const DeviceTraits& device, DType activations) const override {
    HR_RETURN_IF_ERROR(mamba_->check_device(device, activations));
    return attention_->check_device(device, activations);
  }

  // Rows that nobody reads are left out behind the sum, not before.
  void run(const MixerRun& run) const override {
    const ConstTensorView input = held_input(run);
    run_one(run, *mamba_, input, spec_.mamba_scale);
    run_one(run, *attention_, input, spec_.attention_scale);
  }

 private:
  // In place, the branch is to lie where the input does.
  ConstTensorView held_input(const MixerRun& run) const {
    const ConstTensorView x = run.branch.input();
    if (!run.scratch.in_place()) return x;
    const TensorView held = run.scratch.rows(0, run.branch.rows(), hidden_);
    CHECK(x.row_stride == held.row_stride);
    run.branch.context().stream.copy(held.data, x.data, x.rows() * x.row_stride);
    return held;
  }
  static void run_one(const MixerRun& run, const Mixer& mixer, const ConstTensorView& input,
                      float scale) {
    ResidualBranch branch = run.branch.instead(input, scale);
    mixer.run({.branch = branch,
               .scratch = run.scratch.behind(1),
               .angles = run.angles,
               .kv = run.kv,
               .group = run.group,
               .kept = nullptr,
               .states = run.states,
               .positions = run.positions});
  }

  const ParallelMixerSpec spec_;
  const int64_t hidden_;
  const std::unique_ptr<Mixer> mamba_, attention_;
};

}  // namespace

std::unique_ptr<Mixer> make_part(const ParallelMixerSpec& spec, int64_t hidden) {
  return std::make_unique<ParallelMixer>(spec, hidden);
}

}  // namespace headrace
