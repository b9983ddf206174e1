#include "quantize/quantizer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "models/made_model_fixture.h"
#include "quantize/layer_source.h"
#include "quantize/quantize_journal.h"
#include "tensor/half.h"
#include "weights/safetensors_writer.h"

namespace headrace::quantizer_test {
namespace {

namespace fs = std::filesystem;

ModelConfig config_of_blocks() {
  ModelConfig config = tiny_config(/*tied=*/false);
  config.hidden = 64;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = config.rope_dim = 16;
  config.ffn = 96;
  return config;
}

class QuantizerTest : public testing::Test {
 protected:
  QuantizerTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "float");
    write_float_folder();
    for (int32_t i = 0; i < 8 * 32; ++i) tokens_.push_back((i * i + 3 * i) % config_.vocab);
  }

  void write_float_folder() {
    const std::vector<TensorSpec> tensors = architecture_.tensors(config_);
    std::vector<DummyTensor> dummies;
    std::vector<SafetensorsEntry> entries;
    for (const TensorSpec& tensor : tensors) {
      dummies.push_back({.name = tensor.name, .shape = tensor.shape});
      entries.push_back({hf_name_of(architecture_.hf_names(), tensor.name),
                         tensor.exact ? DType::kF32 : DType::kF16, tensor.shape});
    }
    ThreadPool pool(1);
    const auto writer = std::move(
        SafetensorsWriter::create((folder_ / "float/model.safetensors").string(), entries).value());
    for (size_t i = 0; i < dummies.size(); ++i) {
      fill_dummy_tensor(pool, 7, dummies[i], dummies[i].shape.rank() == 1 ? 1.0f : 0.0f,
                        entries[i].dtype, writer->data(i).data());
    }
    std::ofstream(folder_ / "float/config.json") << R"({"model_type": "llama"})";
    std::ofstream(folder_ / "float/tokenizer.json") << "{}";
  }

  std::unique_ptr<SafetensorsWeightSource> open(const std::string& name) {
    auto source = SafetensorsWeightSource::open((folder_ / name).string(),
                                                {.names = architecture_.hf_names()});
    EXPECT_TRUE(source.ok()) << source.status().message();
    return std::move(source.value());
  }

  std::unique_ptr<OutputModel> output(const std::string& name, const QuantizeOptions& options,
                                      const SafetensorsWeightSource& source) {
    HfOutputOptions made{.source = (folder_ / "float").string(),
                         .path = (folder_ / name).string(),
                         .partial = (folder_ / (name + ".partial")).string(),
                         .names = architecture_.hf_names(),
                         .matrices = {},
                         .grid = options.grid,
                         .act_order = options.act_order};
    for (const QuantisedName& matrix : matrices_) made.matrices.push_back(matrix.name);
    return std::move(create_hf_output(made, source).value());
  }

  QuantizeJob job(const QuantizeOptions& options, const WeightSource& source, int32_t done = 0) {
    return {.config = config_,
            .architecture = architecture_,
            .source = source,
            .matrices = matrices_,
            .tokens = tokens_,
            .length = 32,
            .options = options,
            .layers_done = done};
  }

  // Layers up to `last`, then an error, as of a full disk.
  Status run(const QuantizeJob& job, OutputModel& output, int32_t last = 1 << 20) {
    errors_.clear();
    Quantizer quantizer(*device_, job, output);
    return quantizer.run([](double, std::string_view) {},
                         [&](const LayerReport& report) {
                           errors_.push_back(report.error);
                           return report.layer < last ? ok_status() : exhausted("enough");
                         });
  }

  std::string bytes_of(const std::string& name) {
    std::ifstream file(folder_ / name / "model.safetensors", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const ModelConfig config_ = config_of_blocks();
  const Architecture& architecture_ = **find_architecture("llama");
  const fs::path folder_ =
      fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::unique_ptr<Device> device_ = create_cpu_device(2);
  const std::vector<QuantisedName> matrices_ = matrices_to_quantise(config_, architecture_).value();
  std::vector<TokenId> tokens_;
  std::vector<double> errors_;
};

TEST_F(QuantizerTest, WhatItWritesIsReadAsItWasMade) {
  EXPECT_EQ(matrices_.size(), 14u);
  for (const QuantizeMethod method :
       {QuantizeMethod::kNearest, QuantizeMethod::kGptq, QuantizeMethod::kAwq}) {
    for (const bool symmetric : {true, false}) {
      const QuantizeOptions options{.method = method,
                                    .grid = {.bits = 4, .group = 32, .symmetric = symmetric}};
      const auto source = open("float");
      const auto made = output("out", options, *source);
      ASSERT_TRUE(made->copy_rest().ok());
      ASSERT_TRUE(run(job(options, *source), *made).ok());
      EXPECT_EQ(errors_.size(), 2u);
      std::vector<Matrix> values;
      for (const QuantisedName& matrix : matrices_) {
        values.push_back(dequantise(device_->pool(), made->read(matrix.name).value()));
      }
      ASSERT_TRUE(made->finish().ok());
      const auto read = open("out");
      for (size_t i = 0; i < matrices_.size(); ++i) {
        const auto back = read_tensor(device_->pool(), *read, matrices_[i].name);
        ASSERT_TRUE(back.ok()) << back.status().message();
        EXPECT_TRUE(std::ranges::equal(back->values(), values[i].values())) << matrices_[i].name;
      }
      EXPECT_EQ(read->info("blk.0.ffn_down.weight")->type, "INT4-g32");
      EXPECT_EQ(read->info("output.weight")->type, "F16");
      EXPECT_TRUE(fs::exists(folder_ / "out/tokenizer.json"));
      EXPECT_FALSE(fs::exists(folder_ / "out.partial"));
      fs::remove_all(folder_ / "out");
    }
  }
}

TEST_F(QuantizerTest, GptqAndAwqLoseLessThanNearest) {
  const auto source = open("float");
  const auto error_of = [&](QuantizeMethod method) {
    const QuantizeOptions options{.method = method, .grid = {.bits = 4, .group = 32}};
    const auto made = output("out", options, *source);
    EXPECT_TRUE(made->copy_rest().ok());
    EXPECT_TRUE(run(job(options, *source), *made).ok());
    return errors_[0];
  };
  const double nearest = error_of(QuantizeMethod::kNearest);
  EXPECT_GT(nearest, 1e-4);
  EXPECT_LT(nearest, 0.05);
  EXPECT_LT(error_of(QuantizeMethod::kGptq), 0.7 * nearest);
  EXPECT_LT(error_of(QuantizeMethod::kAwq), 0.95 * nearest);
}

TEST_F(QuantizerTest, AnInterruptedRunGoesOnToTheSameBytes) {
  const QuantizeOptions options{.method = QuantizeMethod::kAwq, .grid = {.bits = 4, .group = 32}};
  const auto source = open("float");
  {
    const auto whole = output("whole", options, *source);
    EXPECT_FALSE(whole->continued());
    ASSERT_TRUE(whole->copy_rest().ok());
    ASSERT_TRUE(run(job(options, *source), *whole).ok());
    ASSERT_TRUE(whole->finish().ok());
  }
  {
    const auto first = output("again", options, *source);
    ASSERT_TRUE(first->copy_rest().ok());
    EXPECT_EQ(run(job(options, *source), *first, /*last=*/0).message(), "enough");
    EXPECT_FALSE(fs::exists(folder_ / "again"));
  }
  const auto second = output("again", options, *source);
  EXPECT_TRUE(second->continued());
  ASSERT_TRUE(run(job(options, *source, /*done=*/1), *second).ok());
  EXPECT_EQ(errors_.size(), 1u);
  ASSERT_TRUE(second->finish().ok());
  EXPECT_TRUE(bytes_of("again") == bytes_of("whole"));
}

TEST_F(QuantizerTest, AWeightThatIsNoNumberIsNamed) {
  {
    const auto names = architecture_.hf_names();
    const auto file = SafetensorsFile::open((folder_ / "float/model.safetensors").string()).value();
    const auto* tensor = file->find(hf_name_of(names, "blk.1.ffn_up.weight"));
    std::fstream out(folder_ / "float/model.safetensors",
                     std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(tensor->bytes.data() - file->bytes().data());
    out.write("\xff\x7f", 2);
  }
  const auto source = open("float");
  const QuantizeOptions options{.method = QuantizeMethod::kNearest, .grid = {.group = 32}};
  const auto made = output("out", options, *source);
  ASSERT_TRUE(made->copy_rest().ok());
  const Status status = run(job(options, *source), *made);
  EXPECT_NE(status.message().find("model.layers.1.mlp.up_proj.weight"), std::string::npos)
      << status.message();
}

TEST(QuantizeJournal, KnowsOnlyRunsOfItsSettings) {
  const std::string path = testing::TempDir() + "journal.json";
  const Json settings = Json::object().set("bits", 4).set("damping", 0.01);
  const QuantizeJournal journal(path, settings);
  journal.remove();
  EXPECT_TRUE(journal.read().empty());
  ASSERT_TRUE(journal.write({0.5, 0.25}).ok());
  EXPECT_EQ(journal.read(), (std::vector<double>{0.5, 0.25}));
  EXPECT_TRUE(QuantizeJournal(path, Json::object().set("bits", 8)).read().empty());
  std::ofstream(path) << "{\"settings\": ";
  EXPECT_TRUE(journal.read().empty());
  journal.remove();
}

TEST(MatricesToQuantise, MixturesAreRefusedByName) {
  ModelConfig config = tiny_config();
  config.architecture = "qwen3moe";
  config.experts.count = 4;
  const auto refused = matrices_to_quantise(config, **find_architecture("llama"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(refused.status().message().find("qwen3moe"), std::string::npos);
}

}  // namespace
}  // namespace headrace::quantizer_test
