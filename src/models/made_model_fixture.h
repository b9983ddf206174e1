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

// That a decoder gives the same bits whole, in pieces, row by row, and with few rows read behind
// the last layer, and what it gives.
inline SequenceValues expect_bits_of_steps(const DecoderSpec& spec) {
  constexpr int32_t kRows = MadeModel::kTokens;
  const auto device = create_cpu_device(2);
  const MadeModel made(spec, *device);
  SequenceValues whole = made.run({kRows});
  for (const auto& steps :
       {std::vector<int32_t>{7, 16, 1, 1, 20, 15}, std::vector<int32_t>(kRows, 1)}) {
    EXPECT_EQ(made.run(steps).logits, whole.logits);
  }
  EXPECT_EQ(made.run({50, 10}, /*read_last=*/1).logits,
            (std::vector{whole.logits[49], whole.logits[59]}));
  return whole;
}

// The same of a mixer in either layer beside attention, where it changes something.
inline void expect_runs_in_a_decoder(const MixerSpec& mixer) {
  const DecoderSpec spec = uniform_decoder(tiny_config());
  const SequenceValues attention_alone = expect_bits_of_steps(spec);
  const auto device = create_cpu_device(2);
  for (const size_t layer : {0, 1}) {
    DecoderSpec mixed = spec;
    mixed.layers[layer].mixer = mixer;
    EXPECT_GT(state_entry_bytes(MadeModel(mixed, *device).model().spec()), 0);
    EXPECT_NE(expect_bits_of_steps(mixed).logits, attention_alone.logits);
  }
}

}  // namespace headrace
