// A tiny Llama with random weights against plain double-precision loops, and the invariance of its
// results to how the tokens are cut into steps.
#include "models/decoder_spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "base/rng.h"
#include "models/decoder.h"
#include "models/made_model_fixture.h"
#include "models/model_fixture.h"
#include "tensor/communicator.h"
#include "tensor/workspace.h"

namespace headrace::llama_test {
namespace {

constexpr int32_t kBlockTokens = 16;

class MemorySource final : public WeightSource {
 public:
  using WeightSource::get;
  bool has(std::string_view name) const override { return tensors_.contains(std::string(name)); }
  std::vector<std::string_view> names() const override { return {}; }
  Result<ConstTensorView> get(std::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    if (found == tensors_.end()) return corrupt("no tensor " + std::string(name));
    return ConstTensorView(reinterpret_cast<const std::byte*>(found->second.data()), DType::kF32,
                           shapes_.at(found->first));
  }
  void release(const ConstTensorView&) const override {}
  std::string_view description() const override { return "memory"; }

  void add(const TensorSpec& spec, uint64_t seed) {
    std::vector<float> values(static_cast<size_t>(*spec.shape.elements()));
    Rng rng(seed);
    const bool norm = spec.shape.rank() == 1;
    for (float& value : values) {
      value = static_cast<float>((rng.uniform() - 0.5) * (norm ? 0.5 : 0.6)) + (norm ? 1.0f : 0.0f);
    }
    tensors_[spec.name] = std::move(values);
    shapes_[spec.name] = spec.shape;
  }
  std::vector<float>& values(const std::string& name) { return tensors_.at(name); }
  const std::vector<float>& values(const std::string& name) const { return tensors_.at(name); }

 private:
  std::map<std::string, std::vector<float>> tensors_;
  std::map<std::string, Shape> shapes_;
};

MemorySource random_weights(const ModelConfig& config) {
  MemorySource source;
  uint64_t seed = 1;
  for (const TensorSpec& spec : decoder_tensors(uniform_decoder(config))) source.add(spec, seed++);
  return source;
}

Result<std::unique_ptr<Model>> load_llama(const ModelConfig& config, const WeightSource& source,
                                          Device& device, const ModelLoadOptions& options) {
  return load_decoder(uniform_decoder(config), source, device, options);
}

using Vector = std::vector<double>;

Vector times(const std::vector<float>& matrix, const Vector& x) {
  const size_t rows = matrix.size() / x.size();
  Vector y(rows, 0.0);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < x.size(); ++c) y[r] += double{matrix[r * x.size() + c]} * x[c];
  }
  return y;
}

Vector normed(const Vector& x, const std::vector<float>& weight, double eps) {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

void rotate(Vector& heads, int64_t head_dim, double position, double theta) {
  for (size_t head = 0; head < heads.size(); head += static_cast<size_t>(head_dim)) {
    for (int64_t i = 0; i < head_dim / 2; ++i) {
      const double angle =
          position * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      double& a = heads[head + static_cast<size_t>(i)];
      double& b = heads[head + static_cast<size_t>(i + head_dim / 2)];
      const double rotated_a = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = rotated_a;
    }
  }
}

// Logits of every position, in double.
std::vector<Vector> reference_logits(const ModelConfig& config, const MemorySource& source,
                                     const std::vector<TokenId>& tokens) {
  const auto hidden = static_cast<size_t>(config.hidden);
  const auto dim = static_cast<size_t>(config.head_dim);
  std::vector<Vector> x;
  for (TokenId token : tokens) {
    const auto& table = source.values("token_embd.weight");
    const auto first = table.begin() + token * static_cast<int64_t>(hidden);
    x.emplace_back(first, first + static_cast<int64_t>(hidden));
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto w = [&](const char* part) -> const std::vector<float>& {
      return source.values("blk." + std::to_string(layer) + "." + part + ".weight");
    };
    std::vector<Vector> keys, values;
    for (size_t t = 0; t < tokens.size(); ++t) {
      const Vector h = normed(x[t], w("attn_norm"), config.rms_eps);
      Vector q = times(w("attn_q"), h), k = times(w("attn_k"), h);
      rotate(q, config.head_dim, static_cast<double>(t), config.rope_theta);
      rotate(k, config.head_dim, static_cast<double>(t), config.rope_theta);
      keys.push_back(k);
      values.push_back(times(w("attn_v"), h));
      Vector mixed(q.size(), 0.0);
      for (size_t head = 0; head < static_cast<size_t>(config.heads); ++head) {
        const size_t kv_head =
            head * static_cast<size_t>(config.kv_heads) / static_cast<size_t>(config.heads);
        Vector weights(t + 1);
        for (size_t s = 0; s <= t; ++s) {
          double dot = 0;
          for (size_t d = 0; d < dim; ++d) dot += q[head * dim + d] * keys[s][kv_head * dim + d];
          weights[s] = std::exp(dot / std::sqrt(static_cast<double>(dim)));
        }
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (size_t s = 0; s <= t; ++s) {
          for (size_t d = 0; d < dim; ++d) {
            mixed[head * dim + d] += weights[s] / sum * values[s][kv_head * dim + d];
          }
        }
      }
      const Vector out = times(w("attn_output"), mixed);
      for (size_t i = 0; i < hidden; ++i) x[t][i] += out[i];
      const Vector f = normed(x[t], w("ffn_norm"), config.rms_eps);
      Vector gate = times(w("ffn_gate"), f);
      const Vector up = times(w("ffn_up"), f);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      const Vector down = times(w("ffn_down"), gate);
      for (size_t i = 0; i < hidden; ++i) x[t][i] += down[i];
    }
  }
  std::vector<Vector> logits;
  for (const Vector& row : x) {
    logits.push_back(
        times(source.values(config.tied_embeddings ? "token_embd.weight" : "output.weight"),
              normed(row, source.values("output_norm.weight"), config.rms_eps)));
  }
  return logits;
}

// Runs one sequence through a model in steps of the given sizes; logits of every position.
class Session {
 public:
  Session(Device& device, const Model& model) : device_(device), model_(model) {
    const ModelSpec& spec = model.spec();
    KvLayerView kv = kv_view(spec.kv[0], {KvFormat::kF32}, KeyLayout::kTransposed, kBlockTokens);
    const int64_t part = kv.v_offset;
    kv.block_stride = 2 * part * spec.layer_count;
    pool_ = std::move(device.allocate(2 * part * spec.layer_count * 8).value());
    std::memset(pool_.data(), 0xff,
                static_cast<size_t>(pool_.size()));  // NaN: nothing unwritten is read
    for (int32_t layer = 0; layer < spec.layer_count; ++layer) {
      kv.base = pool_.data() + layer * 2 * part;
      kv_.push_back(kv);
    }
    workspace_ = Workspace(
        std::move(device.allocate(model.workspace_bytes(128, 128, 128, 2) + (8 << 20)).value()));
  }

  std::vector<std::vector<float>> run(const std::vector<TokenId>& tokens,
                                      const std::vector<int32_t>& steps) {
    std::vector<std::vector<float>> logits;
    int32_t first = 0;
    for (int32_t count : steps) {
      step(tokens, first, count, logits);
      first += count;
    }
    EXPECT_EQ(first, static_cast<int32_t>(tokens.size()));
    return logits;
  }

 private:
  void step(const std::vector<TokenId>& tokens, int32_t first, int32_t count,
            std::vector<std::vector<float>>& logits) {
    const std::vector<int32_t> table = {5, 2, 7, 0, 3, 6, 1, 4};
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    for (int32_t p = first; p < first + count; ++p) {
      positions.push_back(p);
      slots.push_back(int64_t{table[static_cast<size_t>(p / kBlockTokens)]} * kBlockTokens +
                      p % kBlockTokens);
    }
    const AttentionSequence sequence{0, count, first + count, table.data()};
    const ForwardBatch::Group group{slots, {&sequence, 1}};
    const std::vector<int32_t> layer_group(static_cast<size_t>(model_.spec().layer_count), 0);
    const ForwardBatch batch{
        TokenSpan(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
        positions,
        {&group, 1},
        layer_group};
    OpContext context{device_, *stream_, workspace_, mesh_};
    Workspace::Mark mark(workspace_);
    const TensorView hidden =
        workspace_.take_tensor(DType::kF32, Shape{count, model_.spec().hidden_size});
    const TensorView out =
        workspace_.take_tensor(DType::kF32, Shape{count, model_.spec().vocab_size});
    model_.embed(context, batch, hidden);
    model_.layers(context, batch, {0, model_.spec().layer_count}, kv_, hidden, {});
    model_.head(context, hidden, out);
    for (int32_t r = 0; r < count; ++r) {
      logits.emplace_back(f32_row(out, r), f32_row(out, r) + model_.spec().vocab_size);
    }
  }

  Device& device_;
  const Model& model_;
  std::unique_ptr<Stream> stream_ = device_.create_stream();
  SingleRank rank_;
  Mesh mesh_{&rank_, &rank_, &rank_};
  Buffer pool_;
  std::vector<KvLayerView> kv_;
  Workspace workspace_;
};

std::vector<TokenId> some_tokens(int32_t count) {
  std::vector<TokenId> tokens;
  Rng rng(5);
  for (int32_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng.below(97)));
  return tokens;
}

TEST(Llama, EqualsDoublePrecisionLoops) {
  const auto device = create_cpu_device(2);
  for (bool tied : {true, false}) {
    const ModelConfig config = tiny_config(tied);
    const MemorySource source = random_weights(config);
    auto model = load_llama(config, source, *device, {.compute = ComputeType::kFloat32});
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto tokens = some_tokens(40);
    const auto expected = reference_logits(config, source, tokens);
    const auto logits = Session(*device, **model).run(tokens, {40});
    for (size_t t = 0; t < tokens.size(); ++t) {
      double scale = 0;
      for (double v : expected[t]) scale = std::max(scale, std::abs(v));
      for (size_t v = 0; v < expected[t].size(); ++v) {
        ASSERT_NEAR(logits[t][v], expected[t][v], 1e-5 * scale) << "position " << t;
      }
    }
  }
}

TEST(Llama, BitsDoNotDependOnTheSteps) {
  const auto device = create_cpu_device(2);
  const ModelConfig config = tiny_config(true);
  const MemorySource source = random_weights(config);
  for (ComputeType compute : {ComputeType::kFast, ComputeType::kFloat32}) {
    auto model = load_llama(config, source, *device, {.compute = compute});
    ASSERT_TRUE(model.ok());
    const auto tokens = some_tokens(60);
    const auto whole = Session(*device, **model).run(tokens, {60});
    EXPECT_EQ(whole, Session(*device, **model).run(tokens, {7, 16, 1, 1, 20, 15}));
    EXPECT_EQ(whole, Session(*device, **model).run(tokens, std::vector<int32_t>(60, 1)));
  }
}

// The same model with its q and k rows in GGUF's interleaved order.
TEST(Llama, InterleavedRowsAreTheSameModel) {
  const auto device = create_cpu_device(1);
  ModelConfig config = tiny_config(true);
  const MemorySource plain = random_weights(config);
  MemorySource interleaved = plain;
  const auto dim = static_cast<size_t>(config.head_dim),
             hidden = static_cast<size_t>(config.hidden);
  for (int layer = 0; layer < 2; ++layer) {
    for (const char* part : {"attn_q", "attn_k"}) {
      const std::string name = "blk." + std::to_string(layer) + "." + part + ".weight";
      const std::vector<float>& from = plain.values(name);
      std::vector<float>& to = interleaved.values(name);
      for (size_t row = 0; row < from.size() / hidden; ++row) {
        const size_t in_head = row % dim, head = row - in_head;
        const size_t target = head + 2 * (in_head % (dim / 2)) + in_head / (dim / 2);
        std::copy_n(from.begin() + static_cast<int64_t>(row * hidden), hidden,
                    to.begin() + static_cast<int64_t>(target * hidden));
      }
    }
  }
  auto a = load_llama(config, plain, *device, {});
  config.qk_rows_interleaved = true;
  auto b = load_llama(config, interleaved, *device, {});
  ASSERT_TRUE(a.ok() && b.ok());
  const auto tokens = some_tokens(20);
  EXPECT_EQ(Session(*device, **a).run(tokens, {20}), Session(*device, **b).run(tokens, {20}));
}

TEST(Llama, AMissingOrMisshapenTensorIsNamed) {
  const auto device = create_cpu_device(1);
  ModelConfig config = tiny_config(true);
  const MemorySource source = random_weights(config);
  config.ffn = 81;
  const Status misshapen = load_llama(config, source, *device, {}).status();
  EXPECT_NE(misshapen.message().find("blk.0.ffn_gate.weight"), std::string::npos);
  config = tiny_config(false);
  EXPECT_NE(load_llama(config, source, *device, {}).status().message().find("output.weight"),
            std::string::npos);
}

TEST(Architectures, AnUnknownOneIsNamedBesideTheKnown) {
  const Status status = find_architecture("rwkv6").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("rwkv6"), std::string::npos);
  EXPECT_NE(status.message().find("llama"), std::string::npos);
}

// Of steps over 256 rows the feed-forward part takes runs: three of 201 rows here, then one of 1.
TEST(Llama, LongStepsHaveTheBitsOfShortOnes) {
  ModelConfig config = tiny_config(true);
  config.context_length = 1024;
  const MemorySource source = random_weights(config);
  const auto device = create_cpu_device(2);
  const auto model = *load_llama(config, source, *device, {});
  Rng rng(3);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 604; ++i) {
    tokens.push_back(static_cast<TokenId>(rng.below(static_cast<uint64_t>(config.vocab))));
  }
  const auto run = [&](const std::vector<int32_t>& steps) {
    return SequenceSession(*device, *model, 604).run(tokens, steps);
  };
  const SequenceValues shorter = run({200, 200, 200, 4});
  for (const auto& steps : {std::vector<int32_t>{603, 1}, std::vector<int32_t>{257, 256, 91}}) {
    const SequenceValues longer = run(steps);
    EXPECT_EQ(longer.logits, shorter.logits);
    EXPECT_EQ(longer.hidden, shorter.hidden);
  }
}

}  // namespace
}  // namespace headrace::llama_test
