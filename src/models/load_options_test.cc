// Ways to load the same weights: quantised on load or before, packed or found packed. None may
// change a bit of the model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "models/decoder.h"
#include "models/decoder_spec.h"
#include "models/model_fixture.h"
#include "weights/dummy_weights.h"

namespace headrace::load_options_test {
namespace {

namespace fs = std::filesystem;

// Every row of a matrix is whole blocks of 256 columns but the embedding's.
ModelConfig wide_config() {
  ModelConfig config;
  config.architecture = "llama";
  config.hidden = 256;
  config.layers = 2;
  config.heads = 8;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.ffn = 768;
  config.vocab = 70;
  config.context_length = 64;
  config.rms_eps = 1e-5f;
  config.rope_theta = 10000;
  config.rope_dim = 32;
  config.tied_embeddings = false;
  return config;
}

std::shared_ptr<DummyWeightSource> float_weights(const ModelConfig& config) {
  std::vector<DummyTensor> tensors;
  for (const TensorSpec& spec : decoder_tensors(uniform_decoder(config))) {
    tensors.push_back({spec.name, spec.shape});
  }
  return std::move(
      DummyWeightSource::create(std::move(tensors), {.dtype = DType::kF32, .seed = 7}).value());
}

class LoadOptions : public testing::Test {
 protected:
  std::unique_ptr<Model> load(const WeightSource& source, const ModelLoadOptions& options) {
    auto model = load_decoder(uniform_decoder(config_), source, *device_, options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return std::move(model).value();
  }
  std::vector<std::vector<float>> logits(const Model& model) {
    std::vector<TokenId> tokens;
    for (TokenId id = 0; id < 33; ++id) tokens.push_back(id * 2);
    return SequenceSession(*device_, model, 33).run(tokens, {20, 1, 12}).logits;
  }

  const std::unique_ptr<Device> device_ = create_cpu_device(2);
  ModelConfig config_ = wide_config();
};

TEST_F(LoadOptions, QuantisedOnLoadIsQuantisedBefore) {
  const auto source = float_weights(config_);
  const auto plain = logits(*load(*source, {}));
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K}) {
    SCOPED_TRACE(dtype_name(dtype));
    const QuantisedSource before(source, dtype);
    const auto on_load = load(*source, {.quantise_to = dtype});
    const auto from_file = load(before, {});
    EXPECT_EQ(on_load->weight_bytes(), from_file->weight_bytes());
    EXPECT_EQ(logits(*on_load), logits(*from_file));
    EXPECT_NE(logits(*on_load), plain);
  }
}

// 768 columns are whole blocks of Q4_K, 576 are not: these become Q4_1.
TEST_F(LoadOptions, WhatIsNoWholeBlocksOfQ4KBecomesQ41) {
  config_.hidden = 96;
  config_.heads = 3;
  config_.kv_heads = 1;
  const auto source = float_weights(config_);
  const auto on_load = load(*source, {.quantise_to = DType::kQ4_K});
  const auto q4_1 = load(*source, {.quantise_to = DType::kQ4_1});
  // ffn_down alone has rows of 768: a block of 256 has 144 bytes packed, eight of 32 have 160.
  const int64_t blocks = int64_t{config_.layers} * 96 * 768 / 256;
  EXPECT_EQ(q4_1->weight_bytes() - on_load->weight_bytes(), blocks * (160 - 144));
}

TEST_F(LoadOptions, FoundPackedIsPacked) {
  const fs::path folder =
      fs::temp_directory_path() / ("load_options_" + std::to_string(::getpid()));
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied);
    config_.tied_embeddings = tied;
    const auto source = float_weights(config_);
    const auto open = [&] {
      return PackedCache::open(folder.string(), "model", tied ? "tied" : "untied", device_->pool());
    };
    const auto first = open();
    ASSERT_FALSE(first->hit());
    const auto packed = load(*source, {.packed_cache = first.get()});
    ASSERT_TRUE(first->write(1 << 30).ok());
    const auto second = open();
    ASSERT_TRUE(second->hit());
    const auto found = load(*source, {.packed_cache = second.get()});
    EXPECT_EQ(second->bytes(), packed->weight_bytes());
    EXPECT_EQ(found->weight_bytes(), packed->weight_bytes());
    EXPECT_EQ(logits(*found), logits(*packed));
    EXPECT_EQ(logits(*found), logits(*load(*source, {})));
  }
  fs::remove_all(folder);
}

// The first matrices at the load, the others by quarters between steps: no step's bits change, and
// what is kept for the next start is whole.
TEST_F(LoadOptions, PackedAtUseIsPacked) {
  const fs::path folder =
      fs::temp_directory_path() / ("load_options_use_" + std::to_string(::getpid()));
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied);
    config_.tied_embeddings = tied;
    const auto source = float_weights(config_);
    const auto expected = logits(*load(*source, {}));
    const auto cache =
        PackedCache::open(folder.string(), "model", tied ? "t" : "u", device_->pool());
    int asked = 0;
    const auto model =
        load(*source, {.packed_cache = cache.get(), .pack_at_use = [&] { return ++asked > 3; }});
    int64_t left = model->unpacked_bytes();
    EXPECT_LT(left, model->weight_bytes());
    for (int steps = 0; left > 0; ++steps) {
      ASSERT_LT(steps, 4);
      EXPECT_EQ(logits(*model), expected);
      model->pack_more(model->weight_bytes() / 4);
      EXPECT_LT(model->unpacked_bytes(), left);
      left = model->unpacked_bytes();
    }
    EXPECT_EQ(logits(*model), expected);
    EXPECT_EQ(cache->bytes(), model->weight_bytes());
    ASSERT_TRUE(cache->write(1 << 30).ok());
    const auto found =
        PackedCache::open(folder.string(), "model", tied ? "t" : "u", device_->pool());
    EXPECT_EQ(logits(*load(*source, {.packed_cache = found.get()})), expected);
  }
  fs::remove_all(folder);
}

// A file of another model under the same key: sizes do not agree, so the weights are packed.
TEST_F(LoadOptions, FoundOfAnotherSizeIsPackedAgain) {
  const fs::path folder =
      fs::temp_directory_path() / ("load_options_size_" + std::to_string(::getpid()));
  const auto source = float_weights(config_);
  const auto open = [&] {
    return PackedCache::open(folder.string(), "model", "key", device_->pool());
  };
  const auto first = open();
  const auto q8_0 = load(*source, {.quantise_to = DType::kQ8_0, .packed_cache = first.get()});
  ASSERT_TRUE(first->write(1 << 30).ok());
  const auto second = open();
  ASSERT_TRUE(second->hit());
  EXPECT_EQ(logits(*load(*source, {.packed_cache = second.get()})), logits(*load(*source, {})));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace headrace::load_options_test
