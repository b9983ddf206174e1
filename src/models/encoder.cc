#include "models/encoder.h"

#include <algorithm>
#include <cmath>

#include "models/pooling.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/embedding.h"

namespace headrace {
namespace {

void add_product(OpContext& context, const LinearLayer& layer, const ConstTensorView& x,
                 const TensorView& sum) {
  linear(context, {.x = x,
                   .weight = &layer.weight,
                   .bias = layer.bias.data(),
                   .y = sum,
                   .output = LinearOutput::kAccumulate});
}

}  // namespace

std::vector<const LinearLayer*> Encoder::matrices() const {
  std::vector<const LinearLayer*> matrices;
  for (const Layer& layer : layers_) {
    for (const LinearLayer* each : {&layer.qkv, &layer.out, &layer.up, &layer.down}) {
      matrices.push_back(each);
    }
  }
  if (config_.head) matrices.insert(matrices.end(), {&head_dense_, &head_out_});
  return matrices;
}

int64_t Encoder::weight_bytes() const {
  int64_t bytes = bytes_of(tokens_);
  for (const LinearLayer* each : matrices()) bytes += each->weight.packed_bytes();
  return bytes;
}

int64_t Encoder::workspace_bytes(int32_t tokens, int32_t thread_count) const {
  int64_t op = full_attention_workspace_bytes(thread_count, config_.head_dim(),
                                              std::min(tokens, config_.length_max));
  for (const LinearLayer* each : matrices()) {
    op = std::max(op, linear_workspace_bytes(tokens, each->weight));
  }
  const int64_t inner = (config_.modern || config_.gated ? 3 : 1) * int64_t{config_.ffn};
  const int64_t columns = 4 * int64_t{config_.hidden} + inner + 1;
  constexpr int64_t kAlignments = 8 * 256;
  return tokens * columns * int64_t{sizeof(float)} + op + kAlignments;
}

void Encoder::embed(OpContext& context, const EncoderBatch& batch, const TensorView& hidden,
                    const TensorView& scratch) const {
  if (config_.modern) {
    embedding(context, {.tokens = batch.tokens, .table = tokens_, .out = hidden});
    return normalise(context, embedding_norm_, hidden, {}, 1.0f, hidden);
  }
  const auto count = static_cast<int64_t>(batch.tokens.size());
  auto* const positions = context.workspace.take_array<TokenId>(count);  // [T]
  std::fill_n(positions, count, 0);
  const int32_t tables = config_.has_second_type() ? 2 : 1;
  const int32_t places = has_positions() ? config_.length_max : 1;
  for (size_t s = 0; has_positions() && s < batch.sequences.size(); ++s) {
    const RowSequence& sequence = batch.sequences[s];
    const bool typed = tables > 1 && !batch.second_rows.empty();
    const int32_t first_rows = sequence.row_count - (typed ? batch.second_rows[s] : 0);
    for (int32_t i = 0; i < sequence.row_count; ++i) {
      positions[sequence.row_first + i] = i < first_rows ? i : config_.length_max + i;
    }
  }
  const ConstTensorView table(reinterpret_cast<const std::byte*>(positions_.data()), DType::kF32,
                              Shape{tables * int64_t{places}, config_.hidden});
  embedding(context, {.tokens = batch.tokens, .table = tokens_, .out = hidden});
  embedding(context, {.tokens = std::span<const TokenId>(positions, batch.tokens.size()),
                      .table = table,
                      .out = scratch});
  normalise(context, embedding_norm_, hidden, scratch, 1.0f, hidden);
}

void Encoder::attend(OpContext& context, const Layer& layer, const EncoderBatch& batch,
                     const TensorView& hidden, const TensorView& qkv,
                     const TensorView& attended) const {
  const bool modern = config_.modern.has_value();
  if (modern && layer.attention_norm.kind != NormKind::kNone) {
    normalise(context, layer.attention_norm, hidden, {}, 1.0f, attended);
    multiply(context, layer.qkv, attended, qkv);
  } else {
    multiply(context, layer.qkv, hidden, qkv);
  }
  if (rotates()) rotate(context, layer.local ? local_rotation_ : rotation_, batch, qkv);
  attend_rows(context, layer, batch, qkv, attended);
  add_product(context, layer.out, attended, hidden);
  if (!modern) normalise(context, layer.attention_norm, hidden, {}, 1.0f, hidden);
}

void Encoder::attend_rows(OpContext& context, const Layer& layer, const EncoderBatch& batch,
                          const TensorView& qkv, const TensorView& attended) const {
  const int64_t width = config_.hidden;
  full_attention(context, {.q = column_range(qkv, 0, width),
                           .k = column_range(qkv, width, width),
                           .v = column_range(qkv, 2 * width, width),
                           .head_dim = config_.head_dim(),
                           .sequences = batch.sequences,
                           .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim())),
                           .bias = distances_.data(),
                           .bias_reach = config_.length_max - 1,
                           .window = layer.local ? config_.modern->window : 0,
                           .out = attended});
}

// As transformers computes them, in f32.
Encoder::Rotation Encoder::rotation(double theta, int32_t head_dim, int32_t length_max) {
  Rotation rotation;
  for (int32_t position = 0; position < length_max; ++position) {
    for (int32_t i = 0; i < head_dim; i += 2) {
      const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
      const float step = 1.0f / std::pow(static_cast<float>(theta), exponent);
      const float angle = static_cast<float>(position) * step;
      rotation.cosines.push_back(std::cos(angle));
      rotation.sines.push_back(std::sin(angle));
    }
  }
  return rotation;
}

// The first half of each head of queries and keys against its second half.
void Encoder::rotate(OpContext& context, const Rotation& rotation, const EncoderBatch& batch,
                     const TensorView& qkv) const {
  const int64_t half = config_.head_dim() / 2, heads = 2 * int64_t{config_.heads};
  const auto rotate_row = [&](float* row, const float* cosines, const float* sines) {
    for (int64_t h = 0; h < heads; ++h) {
      float* const first = row + h * 2 * half;
      float* const second = first + half;
      for (int64_t i = 0; i < half; ++i) {
        const float a = first[i], b = second[i];
        first[i] = a * cosines[i] - b * sines[i];
        second[i] = b * cosines[i] + a * sines[i];
      }
    }
  };
  for (const RowSequence& sequence : batch.sequences) {
    context.device.pool().parallel_for(sequence.row_count, 16, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        rotate_row(f32_row(qkv, sequence.row_first + i), rotation.cosines.data() + i * half,
                   rotation.sines.data() + i * half);
      }
    });
  }
}

void Encoder::transform(OpContext& context, const Layer& layer, const TensorView& hidden,
                        const TensorView& branch, const TensorView& inner) const {
  const Activation gelu = config_.gelu_tanh ? Activation::kGeluTanh : Activation::kGeluErf;
  if (!config_.modern && !config_.gated) {
    multiply(context, layer.up, hidden, inner);
    activation(context, {.x = inner, .activation = gelu, .out = inner});
    add_product(context, layer.down, inner, hidden);
    return normalise(context, layer.output_norm, hidden, {}, 1.0f, hidden);
  }
  const Workspace::Mark mark(context.workspace);
  const int64_t ffn = config_.ffn;
  const TensorView gated =
      context.workspace.take_tensor(DType::kF32, {hidden.rows(), 2 * ffn});  // [T, 2F]
  if (config_.modern) normalise(context, layer.output_norm, hidden, {}, 1.0f, branch);
  multiply(context, layer.up, config_.modern ? branch : hidden, gated);
  const bool silu = config_.gated && config_.gated->silu;
  gated_activation(context,
                   {.gate_up = gated, .activation = silu ? Activation::kSilu : gelu, .out = inner});
  add_product(context, layer.down, inner, hidden);
  if (config_.gated) normalise(context, layer.output_norm, hidden, {}, 1.0f, hidden);
}

bool Encoder::encode(OpContext& context, const EncoderBatch& batch, TensorView hidden,
                     const std::function<bool()>& go_on) const {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  CHECK(hidden.rows() == rows && hidden.columns() == config_.hidden);
  const Workspace::Mark mark(context.workspace);
  Workspace& memory = context.workspace;
  const TensorView branch = memory.take_tensor(DType::kF32, {rows, config_.hidden});  // [T, D]
  const TensorView qkv = memory.take_tensor(DType::kF32, {rows, 3 * int64_t{config_.hidden}});
  const TensorView inner = memory.take_tensor(DType::kF32, {rows, config_.ffn});  // [T, F]
  embed(context, batch, hidden, branch);
  for (const Layer& layer : layers_) {
    if (go_on && !go_on()) return false;
    attend(context, layer, batch, hidden, qkv, branch);
    if (go_on && !go_on()) return false;
    transform(context, layer, hidden, branch, inner);
  }
  if (config_.modern) normalise(context, final_norm_, hidden, {}, 1.0f, hidden);
  return true;
}

void Encoder::pool(OpContext& context, ConstTensorView hidden,
                   std::span<const RowSequence> sequences, TensorView vectors) const {
  const auto count = static_cast<int64_t>(sequences.size());
  context.device.pool().parallel_for(count, 1, [&](int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s) {
      const RowSequence& sequence = sequences[static_cast<size_t>(s)];
      const std::span<float> out(f32_row(vectors, s), static_cast<size_t>(config_.hidden));
      pool_rows(config_.pooling, hidden.row_range(sequence.row_first, sequence.row_count), out);
      if (config_.normalise) scale_to_unit(out);
    }
  });
}

void Encoder::classify(OpContext& context, ConstTensorView hidden,
                       std::span<const RowSequence> sequences, TensorView logits) const {
  CHECK(config_.head && logits.columns() == config_.dimensions());
  const Workspace::Mark mark(context.workspace);
  const auto count = static_cast<int64_t>(sequences.size());
  const auto width = static_cast<size_t>(config_.hidden);
  Workspace& memory = context.workspace;
  const TensorView first = memory.take_tensor(DType::kF32, {count, config_.hidden});  // [S, D]
  const TensorView inner = memory.take_tensor(DType::kF32, {count, config_.hidden});  // [S, D]
  for (int64_t s = 0; s < count; ++s) {
    const RowSequence& sequence = sequences[static_cast<size_t>(s)];
    pool_rows(config_.pooling, hidden.row_range(sequence.row_first, sequence.row_count),
              std::span(f32_row(first, s), width));
  }
  multiply(context, head_dense_, first, inner);
  if (config_.modern) {
    activation(context, {.x = inner, .activation = Activation::kGeluErf, .out = inner});
    normalise(context, head_norm_, inner, {}, 1.0f, inner);
    return multiply(context, head_out_, inner, logits);
  }
  for (int64_t s = 0; s < count; ++s) {
    for (float& value : std::span(f32_row(inner, s), width)) value = std::tanh(value);
  }
  multiply(context, head_out_, inner, logits);
}

}  // namespace headrace
