// Loading of an Encoder.
#include <cstdlib>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "models/encoder.h"
#include "models/layer_tensors.h"
#include "models/parts/attention_mixer.h"
#include "tensor/quantised_row.h"

namespace headrace {

class EncoderLoader {
 public:
  EncoderLoader(const EncoderConfig& config, const WeightSource& source, Device& device,
                const EncoderLoadOptions& options)
      : source_(source), device_(device), options_(options), encoder_(new Encoder(config)) {
    int32_t& length = encoder_->config_.length_max;
    if (options.length_max > 0) length = std::min(length, options.length_max);
  }

  Result<std::unique_ptr<Encoder>> load() {
    if (device_.kind() != DeviceKind::kCpu) {
      return unsupported("encoders are computed on a CPU only: start with --device cpu", "device");
    }
    HR_RETURN_IF_ERROR(load_embeddings());
    HR_RETURN_IF_ERROR(load_distances());
    for (int32_t i = 0; i < config().layers; ++i) {
      HR_RETURN_IF_ERROR(config().modern ? load_modern_layer(i) : load_layer(i));
    }
    if (config().modern) HR_RETURN_IF_ERROR(load_modern_ends());
    if (config().gated && config().gated->theta > 0) {
      encoder_->rotation_ =
          Encoder::rotation(config().gated->theta, config().head_dim(), config().length_max);
    }
    if (config().head) HR_RETURN_IF_ERROR(load_head());
    HR_RETURN_IF_ERROR(check_all_were_read());
    return std::move(encoder_);
  }

 private:
  // Of one layer, by their names in it; or of the model, with no prefix.
  class Tensors final : public LayerTensors {
   public:
    Tensors(EncoderLoader& loader, std::string prefix)
        : loader_(loader), prefix_(std::move(prefix)) {}
    Result<LinearLayer> matrix(const MatrixStack& stack) override {
      return loader_.matrix(prefix_, stack);
    }
    Result<DeviceVector> vector(const std::string& name, int64_t count) override {
      HR_ASSIGN_OR_RETURN(const auto values, loader_.table(prefix_ + name, Shape{count}));
      return DeviceVector::upload(loader_.device_, values);
    }
    Result<std::vector<float>> values(const std::string& name, const Shape& shape) override {
      return loader_.table(prefix_ + name, shape);
    }
    Result<DeviceVector> constant(int64_t count, float value) override {
      return DeviceVector::upload(loader_.device_,
                                  std::vector<float>(static_cast<size_t>(count), value));
    }

   private:
    EncoderLoader& loader_;
    const std::string prefix_;
  };

  const EncoderConfig& config() const { return encoder_->config_; }

  Result<ConstTensorView> get(const std::string& name, const Shape& shape) {
    read_.insert(name);
    return source_.get(name, shape);
  }

  // All values of a tensor, row by row.
  Result<std::vector<float>> table(const std::string& name, const Shape& shape) {
    HR_ASSIGN_OR_RETURN(const ConstTensorView view, get(name, shape));
    std::vector<float> values(static_cast<size_t>(view.rows() * view.columns()));
    for (int64_t r = 0; r < view.rows(); ++r) {
      dequantise_row(view, r, values.data() + r * view.columns());
    }
    source_.release(view);
    return values;
  }

  NormWeights norm_kind() const {
    NormWeights norm;
    const bool biased = !config().modern || config().modern->norm_bias;
    norm.kind = biased ? NormKind::kLayer : NormKind::kLayerNoBias;
    norm.eps = config().norm_eps;
    return norm;
  }

  // A token's type is part of its position's row: the table is there once for each type in use.
  Status load_embeddings() {
    Tensors tensors(*this, "");
    const int64_t hidden = config().hidden;
    HR_ASSIGN_OR_RETURN(encoder_->tokens_, get("token_embd.weight", {config().vocab, hidden}));
    encoder_->embedding_norm_ = norm_kind();
    if (config().modern) {
      return tensors.read_norm("token_embd_norm", hidden, encoder_->embedding_norm_);
    }
    HR_ASSIGN_OR_RETURN(const std::vector<float> served_once, served_positions());
    std::vector<float> served = served_once;
    if (config().has_second_type()) {
      served.insert(served.end(), served_once.begin(), served_once.end());
    }
    if (config().token_types > 0) {
      HR_ASSIGN_OR_RETURN(const std::vector<float> types,
                          table("token_types.weight", {config().token_types, hidden}));
      const auto width = static_cast<size_t>(hidden);
      for (size_t i = 0; i < served.size(); ++i) {
        served[i] += types[i / served_once.size() * width + i % width];
      }
    }
    HR_ASSIGN_OR_RETURN(encoder_->positions_, DeviceVector::upload(device_, served));
    return tensors.read_norm("token_embd_norm", hidden, encoder_->embedding_norm_);
  }

  // Rows of a text's positions; without learned ones a row of zeros.
  Result<std::vector<float>> served_positions() {
    const int64_t hidden = config().hidden;
    if (!encoder_->has_positions()) return std::vector<float>(static_cast<size_t>(hidden));
    HR_ASSIGN_OR_RETURN(const std::vector<float> all,
                        table("position_embd.weight", {config().positions, hidden}));
    const auto first = all.begin() + config().position_first * hidden;
    return std::vector<float>(first, first + config().length_max * hidden);
  }

  // What a score loses by distance, head by head.
  Status load_alibi() {
    const int32_t reach = config().length_max - 1;
    std::vector<float> by_distance;
    for (const float slope : alibi_slopes(config().heads, config().gated->alibi_bias_max)) {
      for (int32_t distance = -reach; distance <= reach; ++distance) {
        by_distance.push_back(-slope * static_cast<float>(std::abs(distance)));
      }
    }
    HR_ASSIGN_OR_RETURN(encoder_->distances_, DeviceVector::upload(device_, by_distance));
    return ok_status();
  }

  // MPNet's biases, of buckets, by distance.
  Status load_distances() {
    if (config().gated && config().gated->alibi_bias_max > 0) return load_alibi();
    const int32_t buckets = config().relative_buckets;
    if (buckets == 0) return ok_status();
    HR_ASSIGN_OR_RETURN(const std::vector<float> biases,
                        table("attn_rel_b.weight", {buckets, config().heads}));
    const int32_t reach = config().length_max - 1;
    std::vector<float> by_distance;
    for (int32_t head = 0; head < config().heads; ++head) {
      for (int32_t distance = -reach; distance <= reach; ++distance) {
        const int64_t bucket = relative_bucket(distance, buckets);
        by_distance.push_back(biases[static_cast<size_t>(bucket * config().heads + head)]);
      }
    }
    HR_ASSIGN_OR_RETURN(encoder_->distances_, DeviceVector::upload(device_, by_distance));
    return ok_status();
  }

  Status load_layer(int32_t index) {
    Tensors tensors(*this, fmt::format("blk.{}.", index));
    const int64_t hidden = config().hidden, ffn = config().ffn;
    Encoder::Layer& layer = encoder_->layers_.emplace_back();
    const MatrixStack qkv = qkv_stack();
    HR_ASSIGN_OR_RETURN(layer.qkv, tensors.matrix(qkv));
    const GatedEncoder* const gated = config().gated ? &*config().gated : nullptr;
    HR_ASSIGN_OR_RETURN(layer.out, tensors.matrix({.rows = {{"attn_output", hidden, {}}},
                                                   .columns = hidden,
                                                   .bias = gated == nullptr || gated->out_bias}));
    layer.attention_norm = norm_kind();
    HR_RETURN_IF_ERROR(tensors.read_norm("attn_output_norm", hidden, layer.attention_norm));
    HR_ASSIGN_OR_RETURN(layer.up, tensors.matrix(up_stack()));
    HR_ASSIGN_OR_RETURN(layer.down, tensors.matrix({.rows = {{"ffn_down", hidden, {}}},
                                                    .columns = ffn,
                                                    .bias = gated == nullptr || gated->down_bias}));
    layer.output_norm = norm_kind();
    return tensors.read_norm("layer_output_norm", hidden, layer.output_norm);
  }

  MatrixStack qkv_stack() const {
    const int64_t hidden = config().hidden;
    MatrixStack stack{
        .rows = {{"attn_q", hidden, {}}, {"attn_k", hidden, {}}, {"attn_v", hidden, {}}},
        .columns = hidden,
        .bias = true};
    if (!config().gated) return stack;
    if (config().gated->qkv_joined) stack.rows = {{"attn_qkv", 3 * hidden, {}}};
    stack.bias = config().gated->qkv_bias;
    return stack;
  }

  // With gates these are in front.
  MatrixStack up_stack() const {
    const int64_t ffn = config().ffn;
    MatrixStack stack{.rows = {{"ffn_up", ffn, {}}}, .columns = config().hidden, .bias = true};
    if (!config().gated) return stack;
    if (config().gated->gate_apart) {
      stack.rows.insert(stack.rows.begin(), MatrixStack::Rows{"ffn_gate", ffn, {}});
    } else {
      stack.rows.front().count = 2 * ffn;
    }
    stack.bias = config().gated->up_bias;
    return stack;
  }

  // Its norms stand in front; that of the first layer's attention would follow the embeddings'.
  Status load_modern_layer(int32_t index) {
    const ModernEncoder& modern = *config().modern;
    Tensors tensors(*this, fmt::format("blk.{}.", index));
    const int64_t hidden = config().hidden, ffn = config().ffn;
    Encoder::Layer& layer = encoder_->layers_.emplace_back();
    layer.local = modern.local[static_cast<size_t>(index)];
    if (index > 0) layer.attention_norm = norm_kind();
    HR_RETURN_IF_ERROR(tensors.read_norm("attn_norm", hidden, layer.attention_norm));
    HR_ASSIGN_OR_RETURN(layer.qkv, tensors.matrix({.rows = {{"attn_qkv", 3 * hidden, {}}},
                                                   .columns = hidden,
                                                   .bias = modern.attention_bias}));
    HR_ASSIGN_OR_RETURN(layer.out, tensors.matrix({.rows = {{"attn_output", hidden, {}}},
                                                   .columns = hidden,
                                                   .bias = modern.attention_bias}));
    layer.output_norm = norm_kind();
    HR_RETURN_IF_ERROR(tensors.read_norm("ffn_norm", hidden, layer.output_norm));
    HR_ASSIGN_OR_RETURN(layer.up, tensors.matrix({.rows = {{"ffn_up", 2 * ffn, {}}},
                                                  .columns = hidden,
                                                  .bias = modern.ffn_bias}));
    HR_ASSIGN_OR_RETURN(layer.down, tensors.matrix({.rows = {{"ffn_down", hidden, {}}},
                                                    .columns = ffn,
                                                    .bias = modern.ffn_bias}));
    return ok_status();
  }

  Status load_modern_ends() {
    Tensors tensors(*this, "");
    const ModernEncoder& modern = *config().modern;
    const int32_t width = config().head_dim(), length = config().length_max;
    encoder_->rotation_ = Encoder::rotation(modern.theta, width, length);
    encoder_->local_rotation_ = Encoder::rotation(modern.local_theta, width, length);
    encoder_->final_norm_ = norm_kind();
    HR_RETURN_IF_ERROR(tensors.read_norm("output_norm", config().hidden, encoder_->final_norm_));
    if (!config().head) return ok_status();
    encoder_->head_norm_ = norm_kind();
    return tensors.read_norm("cls.norm", config().hidden, encoder_->head_norm_);
  }

  Status load_head() {
    Tensors tensors(*this, "");
    const int64_t hidden = config().hidden, classes = config().dimensions();
    const bool biased = !config().modern || config().modern->head_bias;
    HR_ASSIGN_OR_RETURN(
        encoder_->head_dense_,
        tensors.matrix({.rows = {{"cls", hidden, {}}}, .columns = hidden, .bias = biased}));
    HR_ASSIGN_OR_RETURN(
        encoder_->head_out_,
        tensors.matrix({.rows = {{"cls.output", classes, {}}}, .columns = hidden, .bias = true}));
    return ok_status();
  }

  Result<LinearLayer> matrix(const std::string& prefix, const MatrixStack& stack) {
    LinearLayer layer;
    std::vector<LinearSource> sources;
    std::vector<float> bias;
    const auto quantised = options_.quantise_to;
    const bool whole_blocks = quantised && row_bytes(*quantised, stack.columns).has_value();
    for (const MatrixStack::Rows& rows : stack.rows) {
      HR_ASSIGN_OR_RETURN(const ConstTensorView view,
                          get(prefix + rows.name + ".weight", {rows.count, stack.columns}));
      LinearSource& source = sources.emplace_back();
      source.weight = view;
      source.hold = std::shared_ptr<const void>(
          view.data, [from = &source_, view](const void*) { from->release(view); });
      if (whole_blocks) source.quantise_to = quantised;
      if (!stack.bias) continue;
      HR_ASSIGN_OR_RETURN(const auto values,
                          table(prefix + rows.name + ".bias", Shape{rows.count}));
      bias.insert(bias.end(), values.begin(), values.end());
    }
    const LinearCompute compute = whole_blocks ? LinearCompute::kFast : LinearCompute::kFloat32;
    if (stack.bias) {
      HR_ASSIGN_OR_RETURN(layer.bias, DeviceVector::upload(device_, bias));
    }
    HR_ASSIGN_OR_RETURN(layer.weight, LinearWeight::pack(device_, sources, compute));
    return layer;
  }

  // A tensor that would be ignored would make other vectors than the model's makers got.
  Status check_all_were_read() const {
    for (const std::string_view name : source_.names()) {
      if (read_.contains(name)) continue;
      return unsupported(
          fmt::format("{}: tensor {}: {} encoders have none such", source_.description(),
                      source_.name_in_file(name), config().architecture),
          std::string(name));
    }
    return ok_status();
  }

  const WeightSource& source_;
  Device& device_;
  const EncoderLoadOptions& options_;
  std::unique_ptr<Encoder> encoder_;
  std::set<std::string, std::less<>> read_;
};

Result<std::unique_ptr<Encoder>> Encoder::load(const EncoderConfig& config,
                                               const WeightSource& source, Device& device,
                                               const EncoderLoadOptions& options) {
  return EncoderLoader(config, source, device, options).load();
}

}  // namespace headrace
