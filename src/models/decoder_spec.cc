#include "models/decoder_spec.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "models/decoder_layer.h"
#include "models/rope_table.h"

namespace headrace {
namespace {

// Lists what a layer asks for, or the model (kOfModel), and gives it nothing.
class ListedTensors final : public LayerTensors {
 public:
  static constexpr int32_t kOfModel = -1;
  using SharedParts = std::map<int32_t, std::shared_ptr<void>>;  // by the layer that has them
  ListedTensors(int32_t layer, std::vector<TensorSpec>& list, SharedParts& shared,
                const char* prefix = "")
      : layer_(layer), prefix_(prefix), list_(list), shared_(shared) {}

  Result<LinearLayer> matrix(const MatrixStack& stack) override {
    for (const MatrixStack::Rows& rows : stack.rows) {
      // A tensor of which several ranges or matrices are asked for is listed once.
      if (rows.first > 0 || rows.expert > 0) continue;
      add(rows.name + ".weight", stack.shape_in_file(rows), stack.exact);
      if (!stack.bias || rows.bare) continue;
      const Shape bias =
          rows.experts > 0 ? Shape{rows.experts, rows.in_file()} : Shape{rows.in_file()};
      add(rows.name + ".bias", bias);
    }
    return LinearLayer();
  }
  Result<DeviceVector> vector(const std::string& name, int64_t count) override {
    add(name, Shape{count});
    return DeviceVector();
  }
  Result<DeviceVector> vector_or_zeros(const std::string& name, int64_t count) override {
    add(name, Shape{count});
    list_.back().optional = true;
    return DeviceVector();
  }
  Result<std::vector<float>> values(const std::string& name, const Shape& shape) override {
    add(name, shape);
    return std::vector<float>(static_cast<size_t>(shape.elements().value()));
  }
  Result<std::vector<int32_t>> whole_numbers(const std::string& name, const Shape& shape,
                                             int32_t end) override {
    add(name, shape, /*exact=*/true);
    list_.back().below = end;
    return std::vector<int32_t>();
  }
  Result<ConstTensorView> table(const std::string& name, const Shape& shape) override {
    add(name, shape);
    return ConstTensorView();
  }
  Result<LinearLayer> made(const Shape&, std::span<const float>) override { return LinearLayer(); }
  Shared shared(int32_t block, const char* prefix) override {
    return {std::make_unique<ListedTensors>(block, list_, shared_, prefix), shared_[block]};
  }
  Result<DeviceVector> made_vector(std::span<const float>) override { return DeviceVector(); }

 private:
  void add(const std::string& name, const Shape& shape, bool exact = false) {
    std::string whole =
        layer_ == kOfModel ? name : fmt::format("blk.{}.{}{}", layer_, prefix_, name);
    if (!list_.empty() && list_.back().name == whole) return;  // twice, one after the other
    list_.push_back({std::move(whole), shape, exact});
  }

  const int32_t layer_;
  const char* const prefix_;
  std::vector<TensorSpec>& list_;
  SharedParts& shared_;
};

AttentionSpec attention_of(const ModelConfig& config) {
  const float root = std::sqrt(static_cast<float>(config.head_dim));
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .scale = config.attention_scale > 0 ? config.attention_scale : 1.0f / root,
          .soft_cap = config.attention_soft_cap,
          .qk_norm_eps = config.rms_eps,
          .qkv = config.fused.qkv ? QkvTensors::kFused : QkvTensors::kSeparate,
          .qkv_bias = config.qkv_bias,
          .out_bias = config.attention_out_bias,
          .qk_rows_interleaved = config.qk_rows_interleaved,
          .rope_dim = config.rope_dim};
}

MixtureSpec mixture_of(const ExpertConfig& experts) {
  const ExpertScores kind = experts.scores.value_or(ExpertScores::kSoftmax);
  const RouterScores scores = kind == ExpertScores::kSigmoid        ? RouterScores::kSigmoid
                              : kind == ExpertScores::kSparseMixer  ? RouterScores::kSparseMixer
                              : kind == ExpertScores::kSqrtSoftplus ? RouterScores::kSqrtSoftplus
                                                                    : RouterScores::kSoftmax;
  return {
      .router = {.experts = experts.count + experts.identities,
                 .used = experts.used,
                 .scores = scores,
                 .normalised = experts.normalised.value_or(true),
                 .biases_logits = experts.biases_logits,
                 .tolerance = experts.tolerance,
                 .scale = experts.scale,
                 .groups = experts.groups,
                 .groups_used = experts.groups_used,
                 .shared = experts.shared_width > 0 ? SharedExpert::kWhole : SharedExpert::kNone},
      .width = experts.width,
      .identities = experts.identities,
      .shared_width = experts.shared_width};
}

}  // namespace

DecoderSpec uniform_decoder(const ModelConfig& config) {
  const DenseSpec dense{
      .width = config.ffn,
      .tensors = config.fused.gate_up ? DenseTensors::kGatedFused : DenseTensors::kGated,
      .bias = config.ffn_bias};
  const DecoderLayerSpec layer{.mixer = attention_of(config), .feed_forward = dense};
  DecoderSpec spec{.model = {.architecture = config.architecture,
                             .vocab_size = config.vocab,
                             .hidden_size = config.hidden,
                             .layer_count = config.layers,
                             .context_length = config.context_length},
                   .ropes = {rope_table(config)},
                   .layers = std::vector(static_cast<size_t>(config.layers), layer),
                   .norm_eps = config.rms_eps,
                   .embedding_scale = config.embedding_scale > 0 ? config.embedding_scale : 1.0f,
                   .residual_scale = config.residual_scale,
                   .logit_scale = 1.0f / config.logit_divisor,
                   .logit_soft_cap = config.logit_soft_cap,
                   .tied_embeddings = config.tied_embeddings,
                   .output_bias = config.head.bias,
                   .head = config.head,
                   .output_vocab = config.head.tokens};
  for_each_layer(spec, [&](DecoderLayerSpec& each, int32_t i) {
    const bool slides =
        config.sliding_layers.empty() || config.sliding_layers[static_cast<size_t>(i)];
    each.attention().window = slides ? config.window : 0;
    if (config.experts.in_layer(i)) each.feed_forward = mixture_of(config.experts);
  });
  return spec;
}

void slide_all_but_each(DecoderSpec& spec, const ModelConfig& config, int32_t period) {
  if (!config.sliding_layers.empty()) return;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    if ((i + 1) % period == 0) layer.attention().window = 0;
  });
}

ModelSpec model_spec(const DecoderSpec& spec) {
  std::vector<DecoderLayer> layers;
  for (int32_t i = 0; i < spec.model.layer_count; ++i) layers.push_back(make_layer(spec, i));
  return model_spec(spec.model, layers);
}

ModelSpec model_spec(ModelSpec model, std::span<const DecoderLayer> layers) {
  for (const DecoderLayer& layer : layers) {
    model.query_heads = std::max(model.query_heads, layer.mixer->query_heads());
    model.kv.push_back(layer.mixer->kept());
    model.state_bytes.push_back(layer.state_bytes());
    model.keys_of.push_back(layer.mixer->keys_of());
  }
  if (std::ranges::all_of(model.keys_of, [](int32_t of) { return of < 0; })) model.keys_of.clear();
  return model;
}

std::vector<int64_t> state_offsets(const ModelSpec& model) {
  constexpr int64_t kAlignment = 64;
  std::vector<int64_t> offsets = {0};
  for (const int64_t bytes : model.state_bytes) {
    offsets.push_back(offsets.back() + (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  return offsets;
}

std::vector<TensorSpec> decoder_tensors(const DecoderSpec& spec) {
  const int64_t hidden = spec.model.hidden_size, vocab = spec.model.vocab_size;
  std::vector<TensorSpec> tensors = {{"token_embd.weight", Shape{vocab, hidden}}};
  if (spec.positions.count > 0 && spec.positions.wave_steps == 0) {
    tensors.push_back(
        {"position_embd.weight", Shape{spec.positions.first + spec.positions.count, hidden}});
  }
  if (spec.embedding_norm == NormKind::kRms) {
    tensors.push_back({"token_embd_norm.weight", Shape{hidden}});
  }
  if (spec.embedding_norm == NormKind::kLayer) {
    tensors.push_back({"token_embd_norm.weight", Shape{hidden}});
    tensors.push_back({"token_embd_norm.bias", Shape{hidden}});
  }
  if (!is_bare(spec.output_norm) && spec.output_norm != NormKind::kNone) {
    tensors.push_back({spec.output_norm_name + ".weight", Shape{hidden}});
  }
  if (spec.output_norm == NormKind::kLayer) tensors.push_back({"output_norm.bias", Shape{hidden}});
  for (const RopeTable& rope : spec.ropes) {
    const auto count = rope.divisors_in_file > 0 ? rope.divisors_in_file
                                                 : static_cast<int64_t>(rope.inv_freq.size());
    for (const std::string& name : {rope.divisors, rope.other_divisors}) {
      if (!name.empty()) tensors.push_back({name, Shape{count}});
    }
  }
  if (spec.head.classes > 0) {
    tensors.push_back({"cls.output.weight", Shape{spec.head.classes, hidden}});
  }
  if (!spec.tied_embeddings)
    tensors.push_back({"output.weight", Shape{spec.outputs_in_file(), hidden}});
  if (spec.output_bias) tensors.push_back({"output.bias", Shape{spec.outputs()}});
  const FeatureSpec& features = spec.features;
  if (features.use != FeatureUse::kNone) {
    tensors.push_back({"fc.weight", Shape{hidden, features.fc_columns}});
    if (features.fc_bias) tensors.push_back({"fc.bias", Shape{hidden}});
  }
  if (features.use == FeatureUse::kBeside) {
    tensors.push_back({"blk.0.hidden_norm.weight", Shape{hidden}});
  }
  ListedTensors::SharedParts shared;
  ListedTensors of_model(ListedTensors::kOfModel, tensors, shared);
  CHECK(CarriedRows(spec.carried, hidden).load(of_model).ok());
  for (int32_t i = 0; i < spec.model.layer_count; ++i) {
    ListedTensors listed(block_of(spec, i), tensors, shared, prefix_of(spec, i));
    CHECK(make_layer(spec, i).load(listed, hidden).ok());
  }
  return tensors;
}

}  // namespace headrace
