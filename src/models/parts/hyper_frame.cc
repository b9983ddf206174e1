#include "models/parts/hyper_frame.h"

#include <algorithm>
#include <string>

#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/hyper_connection.h"
#include "ops/rows/row_gather.h"
#include "tensor/arena_places.h"

namespace headrace {
namespace {

class HyperFrame final : public LayerFrame {
 public:
  HyperFrame(const HyperSpec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {}

  Status load(LayerTensors& tensors) override {
    HR_RETURN_IF_ERROR(load_gates(tensors, "hc_attn", of_mixer_));
    return load_gates(tensors, "hc_ffn", of_network_);
  }
  std::vector<LinearWeight*> matrices() override {
    return {&of_mixer_.matrix.weight, &of_network_.matrix.weight};
  }
  int64_t workspace_bytes(int64_t rows) const override {
    ArenaPlaces places;
    places.take_tensor(DType::kF32, Shape{rows, logit_count()});
    return places.bytes_for(1) + std::max(linear_workspace_bytes(rows, of_mixer_.matrix.weight),
                                          linear_workspace_bytes(rows, of_network_.matrix.weight));
  }

  void before(const FrameRun& run) const override { read(run, of_mixer_); }
  void between(const FrameRun& run) const override {
    add(run);
    read(run, of_network_);
  }
  void after(const FrameRun& run) const override {
    add(run);
    row_gather(run.context,
               {.x = column_range(run.carried, spec_.carried.stream_column(0, hidden_), hidden_),
                .rows = {},
                .out = run.x});
  }

 private:
  struct Gates {
    LinearLayer matrix;  // [2 N, N D], or [2 N + N N, N D]
    DeviceVector scales, biases;
  };

  int64_t streams() const { return spec_.carried.streams; }
  bool mixes_streams() const { return spec_.carried.hyper_rounds > 0; }
  int64_t matrix_numbers() const { return mixes_streams() ? streams() * streams() : 0; }
  int64_t logit_count() const { return 2 * streams() + matrix_numbers(); }
  Status load_gates(LayerTensors& tensors, const std::string& name, Gates& gates) const {
    MatrixStack stack{.columns = streams() * hidden_, .exact = true};
    stack.rows = {{name + "_fn", logit_count()}};
    HR_ASSIGN_OR_RETURN(gates.matrix, tensors.matrix(stack));
    HR_ASSIGN_OR_RETURN(gates.biases, tensors.vector(name + "_base.weight", logit_count()));
    HR_ASSIGN_OR_RETURN(gates.scales,
                        tensors.vector(name + "_scale.weight", mixes_streams() ? 3 : 2));
    return ok_status();
  }

  TensorView streams_of(const FrameRun& run) const {
    return column_range(run.carried, spec_.carried.stream_column(0, hidden_), streams() * hidden_);
  }
  // What the part has read, and the gates of what it makes: they wait for it.
  TensorView kept(const FrameRun& run) const {
    return column_range(run.carried, spec_.carried.kept_column(hidden_), hidden_);
  }
  TensorView gates(const FrameRun& run) const {
    return column_range(run.carried, spec_.carried.gate_column(hidden_), streams());
  }
  TensorView mixes(const FrameRun& run) const {
    if (!mixes_streams()) return {};
    return column_range(run.carried, spec_.carried.mix_column(hidden_), matrix_numbers());
  }

  void read(const FrameRun& run, const Gates& by) const {
    OpContext& context = run.context;
    Workspace::Mark mark(context.workspace);
    const TensorView logits =
        context.workspace.take_tensor(DType::kF32, Shape{run.x.rows(), logit_count()});
    multiply(context, by.matrix, streams_of(run), logits);
    hyper_mix(context, {.streams = streams_of(run),
                        .logits = logits,
                        .scales = by.scales.data(),
                        .biases = by.biases.data(),
                        .norm_eps = spec_.carried.norm_eps,
                        .eps = spec_.carried.hyper_eps,
                        .magnitude = spec_.magnitude,
                        .x = run.x,
                        .gates = gates(run),
                        .mixes = mixes(run),
                        .rounds = spec_.carried.hyper_rounds});
    row_gather(context, {.x = run.x, .rows = {}, .out = kept(run)});
  }
  void add(const FrameRun& run) const {
    hyper_add(run.context, {.streams = streams_of(run),
                            .gates = gates(run),
                            .x = run.x,
                            .before = kept(run),
                            .mixes = mixes(run)});
  }

  const HyperSpec spec_;
  const int64_t hidden_;
  Gates of_mixer_, of_network_;
};

}  // namespace

std::unique_ptr<LayerFrame> make_frame(const HyperSpec& spec, int64_t hidden) {
  return std::make_unique<HyperFrame>(spec, hidden);
}

}  // namespace headrace
