#include "models/device_limits.h"

#include <gtest/gtest.h>

#include "models/decoder.h"
#include "models/decoder_spec.h"
#include "models/model_fixture.h"
#include "weights/dummy_weights.h"

namespace headrace::device_limits_test {
namespace {

// What an H200 says of itself: the tables of kernels are asked without one.
DeviceTraits hopper() {
  DeviceTraits traits;
  traits.kind = DeviceKind::kCuda;
  traits.name = "NVIDIA H200";
  traits.compute_capability = 90;
  traits.sm_count = 132;
  return traits;
}

DecoderSpec spec_of(int32_t head_dim, int32_t vocabulary) {
  ModelConfig config;
  config.architecture = "llama";
  config.hidden = 64;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = head_dim;
  config.ffn = 96;
  config.vocab = vocabulary;
  config.context_length = 64;
  config.rms_eps = 1e-5f;
  config.rope_theta = 10000;
  config.rope_dim = head_dim;
  config.tied_embeddings = true;
  return uniform_decoder(config);
}

TEST(DeviceLimits, SizesThatKernelsTake) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no CUDA";
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int32_t head_dim : {2, 16, 64, 100, 112, 128, 160, 192, 256, 512}) {
      for (const int32_t vocabulary : {1, 32001, 49155, 262144, 1 << 20}) {
        const Status status = check_device_limits(spec_of(head_dim, vocabulary), hopper(), dtype);
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
  }
}

TEST(DeviceLimits, LargerHeadsAreRefusedByTheirSize) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no CUDA";
  for (const int32_t head_dim : {514, 576, 4096}) {
    const Status status = check_device_limits(spec_of(head_dim, 96), hopper(), DType::kBF16);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_EQ(status.message(), "attention heads of " + std::to_string(head_dim) +
                                    " are larger than kernels on a GPU take, which is 512: use "
                                    "--device cpu");
  }
}

TEST(DeviceLimits, LargerVocabulariesAreRefusedByTheirSize) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no CUDA";
  const Status status = check_device_limits(spec_of(64, (1 << 20) + 1), hopper(), DType::kBF16);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(),
            "a vocabulary of 1048577 tokens is larger than sampling on a GPU takes, which is "
            "1048576: use --device cpu");
}

// Parts without kernels are named, before any other limit.
TEST(DeviceLimits, PartsOfCpusAloneAreRefusedByName) {
  const auto refused = [](const auto& change) {
    DecoderSpec spec = spec_of(64, 96);
    change(spec);
    const Status status = check_device_limits(spec, hopper(), DType::kBF16);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find("on a GPU yet: use --device cpu"), std::string::npos);
    return std::string(status.message());
  };
  const auto starts = [](const std::string& text, const char* with) {
    EXPECT_TRUE(text.starts_with(with)) << text;
  };
  starts(refused([](DecoderSpec& spec) {
           spec.layers[0].mixer = LatentAttentionSpec{.heads = 2,
                                                      .rank = 8,
                                                      .query_rank = 8,
                                                      .plain_dim = 4,
                                                      .rope_dim = 4,
                                                      .value_dim = 4,
                                                      .sinks = true};
         }),
         "sinks in latent attention");
}

// Scores that lean, and values narrower or wider than keys: MiMo V2's sizes, and small ones.
TEST(DeviceLimits, AlibiAndValuesOfAnotherSizeAreTaken) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no CUDA";
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int32_t head_dim : {8, 64, 112, 192}) {
      for (const int32_t value_dim : {0, 7, 128}) {
        for (const float bias_max : {0.0f, 8.0f}) {
          DecoderSpec spec = spec_of(head_dim, 96);
          auto& attention = std::get<AttentionSpec>(spec.layers[0].mixer);
          attention.value_dim = value_dim;
          attention.alibi_bias_max = bias_max;
          const Status status = check_device_limits(spec, hopper(), dtype);
          EXPECT_TRUE(status.ok()) << status.message();
        }
      }
    }
  }
}

// Keys that an index chooses are attended as all are: DeepSeek V3.2's sizes, and small ones.
TEST(DeviceLimits, LatentsOfWhichAnIndexChoosesAreTaken) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no CUDA";
  LatentAttentionSpec large{.heads = 128,
                            .rank = 512,
                            .query_rank = 1536,
                            .plain_dim = 128,
                            .rope_dim = 64,
                            .value_dim = 128,
                            .index = {.heads = 64, .dim = 128, .top = 2048}};
  LatentAttentionSpec small{.heads = 2,
                            .rank = 8,
                            .query_rank = 8,
                            .plain_dim = 4,
                            .rope_dim = 4,
                            .value_dim = 4,
                            .index = {.heads = 3, .dim = 6, .top = 4}};
  for (const LatentAttentionSpec& mixer : {large, small}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      DecoderSpec spec = spec_of(64, 96);
      spec.layers[0].mixer = mixer;
      const Status status = check_device_limits(spec, hopper(), dtype);
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

// A CPU takes whatever a file may ask for.
TEST(DeviceLimits, ACpuTakesLargeHeads) {
  const auto cpu = create_cpu_device(1);
  const DecoderSpec spec = spec_of(1024, 96);
  EXPECT_TRUE(check_device_limits(spec, cpu->traits(), DType::kF32).ok());
  std::vector<DummyTensor> tensors;
  for (const TensorSpec& tensor : decoder_tensors(spec)) {
    tensors.push_back({tensor.name, tensor.shape});
  }
  const auto weights = DummyWeightSource::create(std::move(tensors), {}).value();
  const auto model = load_decoder(spec, *weights, *cpu, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  EXPECT_FALSE(SequenceSession(*cpu, **model, 4).run(tokens, {4}).logits.empty());
}

}  // namespace
}  // namespace headrace::device_limits_test
