#include "models/parts/normed_sum_feed_forward.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace headrace {
namespace {

// Of parts in this one: their products run alone, and take no adapters.
class TensorsOfInnerPart final : public LayerTensors {
 public:
  explicit TensorsOfInnerPart(LayerTensors& tensors) : tensors_(tensors) {}
  bool on_gpu() const override { return tensors_.on_gpu(); }
  Result<LinearLayer> matrix(const MatrixStack& stack) override {
    MatrixStack alone = stack;
    alone.adapts = false;
    return tensors_.matrix(alone);
  }
  Result<DeviceVector> vector(const std::string& name, int64_t count) override {
    return tensors_.vector(name, count);
  }
  Result<std::vector<float>> values(const std::string& name, const Shape& shape) override {
    return tensors_.values(name, shape);
  }

 private:
  LayerTensors& tensors_;
};

class NormedSumFeedForward final : public FeedForward {
 public:
  NormedSumFeedForward(const NormedSumSpec& spec, int64_t hidden)
      : hidden_(hidden),
        network_(make_part(spec.network, hidden)),
        mixture_(make_part(spec.mixture, hidden)) {
    for (NormWeights* const norm :
         {&network_norm_, &network_post_, &mixture_norm_, &mixture_post_, &router_norm_}) {
      norm->kind = NormKind::kRms;
      norm->eps = spec.norm_eps;
    }
    router_norm_.scale = 1.0f / std::sqrt(static_cast<float>(hidden));
  }

  Status split(const ShardSpec& shard) override {
    HR_RETURN_IF_ERROR(network_->split(shard));
    return mixture_->split(shard);
  }

  Status load(LayerTensors& tensors) override {
    TensorsOfInnerPart inner(tensors);
    HR_RETURN_IF_ERROR(tensors.read_norm("ffn_norm", hidden_, network_norm_));
    HR_RETURN_IF_ERROR(network_->load(inner));
    HR_RETURN_IF_ERROR(tensors.read_norm("post_ffw_norm_1", hidden_, network_post_));
    HR_RETURN_IF_ERROR(tensors.read_norm("pre_ffw_norm_2", hidden_, mixture_norm_));
    HR_RETURN_IF_ERROR(mixture_->load(inner));
    HR_RETURN_IF_ERROR(tensors.read_norm("post_ffw_norm_2", hidden_, mixture_post_));
    HR_ASSIGN_OR_RETURN(std::vector<float> scale,
                        tensors.values("ffn_gate_inp.scale", Shape{hidden_}));
    for (float& value : scale) value *= router_norm_.scale;
    HR_ASSIGN_OR_RETURN(router_norm_.weight, tensors.made_vector(scale));
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = network_->matrices();
    for (LinearWeight* const matrix : mixture_->matrices()) all.push_back(matrix);
    return all;
  }

  std::vector<int64_t> scratch_columns(bool in_place) const override {
    std::vector<int64_t> columns(kOfParts, hidden_);
    for (const FeedForward* const part : {network_.get(), mixture_.get()}) {
      const std::vector<int64_t> own = part->scratch_columns(in_place);
      columns.resize(std::max(columns.size(), own.size() + kOfParts));
      for (size_t i = 0; i < own.size(); ++i) {
        columns[i + kOfParts] = std::max(columns[i + kOfParts], own[i]);
      }
    }
    return columns;
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return std::max(network_->op_workspace_bytes(load), mixture_->op_workspace_bytes(load));
  }
  int64_t rows_of_run(int64_t usual) const override { return mixture_->rows_of_run(usual); }
  Status check_device(const DeviceTraits& device, DType activations) const override {
    HR_RETURN_IF_ERROR(network_->check_device(device, activations));
    return mixture_->check_device(device, activations);
  }

  // What the network makes of rows lies where the sum will; what the mixture makes is added to it.
  void run(const FeedForwardRun& run) const override {
    OpContext& context = run.branch.context();
    const int64_t rows = run.branch.rows();
    const TensorView input = run.scratch.rows(kInput, rows, hidden_);
    const TensorView routed = run.scratch.rows(kRouted, rows, hidden_);
    const TensorView made = run.scratch.rows(kMade, rows, hidden_);
    const TensorView sum = run.branch.end_with_rows();
    const PartScratch scratch = run.scratch.behind(kOfParts);

    run.branch.normalise_input(network_norm_, input);
    ResidualStream of_network(context, {.hidden = sum, .normed = input, .branch = sum}, 1.0f);
    ResidualBranch network(of_network, input, network_post_);
    network_->run({.branch = network, .scratch = scratch});
    network.finish();

    run.branch.normalise_input(mixture_norm_, input);
    run.branch.normalise_input(router_norm_, routed);
    ResidualStream of_mixture(context, {.hidden = sum, .normed = input, .branch = made}, 1.0f);
    ResidualBranch mixture(of_mixture, input, mixture_post_);
    mixture_->run({.branch = mixture, .scratch = scratch, .router_input = routed});
    mixture.finish();
    of_mixture.settle();
  }

 private:
  enum Area : size_t { kInput, kRouted, kMade, kOfParts };  // of scratch memory

  const int64_t hidden_;
  const std::unique_ptr<FeedForward> network_, mixture_;
  NormWeights network_norm_, network_post_;  // [D]
  NormWeights mixture_norm_, mixture_post_;  // [D]
  NormWeights router_norm_;                  // [D], divided by the root of D
};

}  // namespace

std::unique_ptr<FeedForward> make_part(const NormedSumSpec& spec, int64_t hidden) {
  return std::make_unique<NormedSumFeedForward>(spec, hidden);
}

}  // namespace headrace
