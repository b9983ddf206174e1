#include "models/parts/normed_rows_frame.h"

#include "ops/rows/scale_rows.h"

namespace headrace {
namespace {

class NormedRowsFrame final : public LayerFrame {
 public:
  NormedRowsFrame(const NormedRowsSpec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}

  Status load(LayerTensors& tensors) override {
    mixer_norm_.kind = network_norm_.kind = spec_.norm;
    mixer_norm_.eps = network_norm_.eps = spec_.norm_eps;
    HR_RETURN_IF_ERROR(tensors.read_norm("attn_norm", hidden_, mixer_norm_));
    return tensors.read_norm("ffn_norm", hidden_, network_norm_);
  }
  std::vector<LinearWeight*> matrices() override { return {}; }
  int64_t workspace_bytes(int64_t) const override { return 0; }
  void before(const FrameRun& run) const override {
    if (!spec_.behind) normalise(run.context, mixer_norm_, run.x, {}, 1.0f, run.x);
  }
  void between(const FrameRun& run) const override {
    scale_rows(run.context, {.x = run.x, .scale = spec_.mixer_scale});
    normalise(run.context, spec_.behind ? mixer_norm_ : network_norm_, run.x, {}, 1.0f, run.x);
  }
  void after(const FrameRun& run) const override {
    scale_rows(run.context, {.x = run.x, .scale = spec_.network_scale});
    if (spec_.behind) normalise(run.context, network_norm_, run.x, {}, 1.0f, run.x);
  }

 private:
  const NormedRowsSpec spec_;
  const int64_t hidden_;
  NormWeights mixer_norm_, network_norm_;
};

}  // namespace

std::unique_ptr<LayerFrame> make_frame(const NormedRowsSpec& spec, int64_t hidden) {
  return std::make_unique<NormedRowsFrame>(spec, hidden);
}

}  // namespace headrace
