#include "quantize/quantizer.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "quantize/block_rows.h"
#include "quantize/layer_quantiser.h"
#include "quantize/layer_runner.h"
#include "quantize/layer_source.h"

namespace headrace {
namespace {

// In a layer; what an architecture declares of these is quantised.
constexpr std::array<std::string_view, 8> kMatrices = {
    "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"};
constexpr std::array<std::string_view, 2> kNorms = {"attn_norm.weight", "ffn_norm.weight"};

Status check_layers(const ModelConfig& config) {
  if (config.experts.count > 0) {
    return unsupported(
        fmt::format("{}: mixtures of experts are not quantised yet: "
                    "--quantization q4_k rounds one while it loads",
                    config.architecture));
  }
  if (has_states(config) || has_joined_layers(config) || config.mixers.latent.rank > 0) {
    return unsupported(
        fmt::format("{}: layers that are not plain attention are not quantised yet: "
                    "--quantization q4_k rounds such a model while it loads",
                    config.architecture));
  }
  return ok_status();
}

}  // namespace

Result<std::vector<QuantisedName>> matrices_to_quantise(const ModelConfig& config,
                                                        const Architecture& architecture) {
  HR_RETURN_IF_ERROR(check_layers(config));
  std::vector<QuantisedName> found;
  for (const TensorSpec& tensor : architecture.tensors(config)) {
    if (tensor.shape.rank() != 2) continue;
    for (int32_t layer = 0; layer < config.layers; ++layer) {
      for (const std::string_view name : kMatrices) {
        if (tensor.name == fmt::format("blk.{}.{}.weight", layer, name)) {
          found.push_back({tensor.name, layer, tensor.shape});
        }
      }
    }
  }
  std::ranges::stable_sort(found, {}, &QuantisedName::layer);
  return found;
}

Quantizer::Quantizer(Device& device, const QuantizeJob& job, OutputModel& output)
    : device_(device), job_(job), output_(output), math_(device) {
  if (job.tokens.empty()) return;
  runner_ =
      std::make_unique<LayerRunner>(device, job.config, job.architecture, job.tokens, job.length);
}

Quantizer::~Quantizer() = default;

Status Quantizer::run(const QuantizeProgress& progress,
                      const std::function<Status(const LayerReport&)>& layer_done) {
  if (runner_) HR_RETURN_IF_ERROR(runner_->embed(job_.source));
  for (int32_t layer = 0; layer < job_.config.layers; ++layer) {
    if (layer >= job_.layers_done) {
      progress(layer, "inputs");
      LayerReport report;
      HR_RETURN_IF_ERROR(quantise_layer(layer, report, progress));
      HR_RETURN_IF_ERROR(layer_done(report));
    }
    progress(layer + 0.7, "on to the next layer");
    if (runner_ && layer + 1 < job_.config.layers) HR_RETURN_IF_ERROR(advance(layer));
  }
  progress(job_.config.layers, "");
  return ok_status();
}

Status Quantizer::quantise_layer(int32_t layer, LayerReport& report,
                                 const QuantizeProgress& progress) {
  std::vector<InputStatistics> inputs;
  if (runner_) {
    InputCollector collector(math_, /*with_products=*/true);
    HR_RETURN_IF_ERROR(runner_->observe(layer, job_.source, collector));
    HR_ASSIGN_OR_RETURN(inputs, collector.finish());
  }
  progress(layer + 0.4, "rounding");
  LayerQuantiser quantiser(math_, job_, output_, layer, std::move(inputs));
  return quantiser.run(report);
}

// Through the layer as a reader of the output will have it.
Status Quantizer::advance(int32_t layer) {
  LayerSource source(job_.source);
  for (const QuantisedName& matrix : job_.matrices) {
    if (matrix.layer != layer) continue;
    HR_ASSIGN_OR_RETURN(const QuantisedMatrix written, output_.read(matrix.name));
    source.replace(matrix.name, dequantise(math_.pool(), written));
  }
  if (job_.options.method == QuantizeMethod::kAwq) {
    for (const std::string_view norm : kNorms) {
      const std::string name = fmt::format("blk.{}.{}", layer, norm);
      if (!job_.source.has(name)) continue;
      HR_ASSIGN_OR_RETURN(const std::vector<float> values, output_.read_float(name));
      source.replace(name, values);
    }
  }
  return runner_->advance(layer, source);
}

}  // namespace headrace
