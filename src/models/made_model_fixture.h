// For tests: a tiny decoder of any spec, with made-up weights.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "models/decoder.h"
#include "models/model_fixture.h"
#include "weights/dummy_weights.h"

namespace headrace {

// Two layers of attention and a gated network.
inline ModelConfig tiny_config(bool tied = true) {
  ModelConfig config;
  config.architecture = "llama";
  config.hidden = 48;
  config.layers = 2;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.ffn = 80;
  config.vocab = 97;
  config.context_length = 128;
  config.rms_eps = 1e-5f;
  config.rope_theta = 10000;
  config.rope_dim = 8;
  config.tied_embeddings = tied;
  return config;
}

class MadeModel {
 public:
  static constexpr int32_t kTokens = 60;

  MadeModel(const DecoderSpec& spec, Device& device) : device_(device) {
    std::vector<DummyTensor> tensors;
    for (const TensorSpec& tensor : decoder_tensors(spec)) {
      tensors.push_back({.name = tensor.name, .shape = tensor.shape});
    }
    weights_ = DummyWeightSource::create(std::move(tensors), {.dtype = DType::kF32}).value();
    model_ = std::move(load_decoder(spec, *weights_, device, {}).value());
  }

  const Model& model() const { return *model_; }
  // Of kTokens tokens; `steps` add up to as many.
  SequenceValues run(const std::vector<int32_t>& steps, int32_t read_last = 0) const {
    std::vector<TokenId> tokens;
    for (TokenId id = 0; id < kTokens; ++id) tokens.push_back(id * 7 % model_->spec().vocab_size);
    SequenceSession session(device_, *model_, kTokens);
    session.read_last(read_last);
    return session.run(tokens, steps);
  }

 private:
  Device& device_;
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<Model> model_;
};

}  // namespace headrace
