#include "models/parts/gated_streams_frame.h"

#include <algorithm>

#include "models/parts/gated_streams.h"
#include "models/row_views.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/row_gather.h"

namespace headrace {
namespace {

class GatedStreamsFrame final : public LayerFrame {
 public:
  GatedStreamsFrame(const GatedStreamsSpec& spec, int64_t hidden)
      : carried_(spec.carried),
        hidden_(hidden),
        of_mixer_(carried_.streams, carried_.gate_rank, carried_.norm_eps, hidden, true),
        of_network_(carried_.streams, carried_.gate_rank, carried_.norm_eps, hidden, true) {}

  Status load(LayerTensors& tensors) override {
    HR_RETURN_IF_ERROR(of_mixer_.load(tensors, "hc_attn"));
    return of_network_.load(tensors, "hc_ffn");
  }
  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = of_mixer_.matrices();
    for (LinearWeight* const matrix : of_network_.matrices()) all.push_back(matrix);
    return all;
  }
  int64_t workspace_bytes(int64_t rows) const override {
    return std::max(of_mixer_.workspace_bytes(rows), of_network_.workspace_bytes(rows));
  }

  void before(const FrameRun& run) const override { read(run, of_mixer_); }
  void between(const FrameRun& run) const override {
    add(run, of_mixer_);
    read(run, of_network_);
  }
  void after(const FrameRun& run) const override {
    add(run, of_network_);
    row_gather(run.context,
               {.x = column_range(run.carried, carried_.stream_column(0, hidden_), hidden_),
                .rows = {},
                .out = run.x});
  }

 private:
  TensorView streams_of(const FrameRun& run) const {
    return column_range(run.carried, carried_.stream_column(0, hidden_),
                        carried_.streams * hidden_);
  }
  // What the part has read, and the gates of what it makes: they wait for it.
  TensorView kept(const FrameRun& run) const {
    return column_range(run.carried, carried_.kept_column(hidden_), hidden_);
  }
  TensorView logits(const FrameRun& run) const {
    return column_range(run.carried, carried_.gate_column(hidden_), carried_.streams);
  }

  void read(const FrameRun& run, const GatedStreams& by) const {
    by.read(run.context, streams_of(run), run.x, logits(run));
    row_gather(run.context, {.x = run.x, .rows = {}, .out = kept(run)});
  }
  void add(const FrameRun& run, const GatedStreams& by) const {
    residual_add(run.context, {.x = run.x, .residual = kept(run), .scale = -1.0f});
    by.add(run.context, streams_of(run), run.x, logits(run));
  }

  const CarriedSpec carried_;
  const int64_t hidden_;
  GatedStreams of_mixer_, of_network_;
};

}  // namespace

std::unique_ptr<LayerFrame> make_frame(const GatedStreamsSpec& spec, int64_t hidden) {
  return std::make_unique<GatedStreamsFrame>(spec, hidden);
}

}  // namespace headrace
