// Adapters in a pass: against Hugging Face PEFT, against weights that have them merged in, and
// their bits whatever the steps.
#include "models/lora_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "models/dummy_lora.h"
#include "models/model_fixture.h"
#include "weights/safetensors.h"
#include "weights/safetensors_source.h"

namespace headrace::lora_adapter_test {
namespace {

namespace fs = std::filesystem;

const fs::path kModels = "tests/data/models";
const fs::path kAdapters = "tests/data/adapters";

// W + scale * B A in place of the matrices W that an adapter is of.
class MergedSource final : public WeightSource {
 public:
  MergedSource(std::shared_ptr<const WeightSource> source, const LoraFile& lora)
      : source_(std::move(source)), lora_(lora) {}
  using WeightSource::get;
  bool has(std::string_view name) const override { return source_->has(name); }
  std::vector<std::string_view> names() const override { return source_->names(); }
  void release(const ConstTensorView&) const override {}
  std::string_view description() const override { return "merged"; }

  Result<ConstTensorView> get(std::string_view name) const override {
    HR_ASSIGN_OR_RETURN(const ConstTensorView view, source_->get(name));
    const LoraPair* const pair = lora_.find(name);
    if (pair == nullptr) return view;
    const int64_t columns = view.columns(), rank = pair->a.rows();
    std::vector<float>& merged = matrices_[std::string(name)];
    merged.resize(static_cast<size_t>(view.rows() * columns));
    std::vector<float> a(static_cast<size_t>(rank * columns)), b(static_cast<size_t>(rank));
    for (int64_t r = 0; r < rank; ++r)
      dequantise_row(pair->a, r, &a[static_cast<size_t>(r * columns)]);
    for (int64_t n = 0; n < view.rows(); ++n) {
      float* const row = &merged[static_cast<size_t>(n * columns)];
      dequantise_row(view, n, row);
      dequantise_row(pair->b, n, b.data());
      for (int64_t k = 0; k < columns; ++k) {
        double sum = 0;
        for (int64_t r = 0; r < rank; ++r) {
          sum += double{b[static_cast<size_t>(r)]} * a[static_cast<size_t>(r * columns + k)];
        }
        row[k] = static_cast<float>(row[k] + pair->scale * sum);
      }
    }
    return ConstTensorView(reinterpret_cast<const std::byte*>(merged.data()), DType::kF32,
                           view.shape);
  }

 private:
  const std::shared_ptr<const WeightSource> source_;
  const LoraFile& lora_;
  mutable std::map<std::string, std::vector<float>> matrices_;
};

// A tiny model of tests/data/models that takes adapters.
struct BaseModel {
  ModelConfig config;
  const Architecture* architecture = nullptr;
  std::shared_ptr<const WeightSource> weights;
  std::unique_ptr<Model> model;
  bool in_gguf = false;

  static BaseModel open(const std::string& name, Device& device,
                        ComputeType compute = ComputeType::kFloat32) {
    BaseModel base;
    const fs::path folder = kModels / name;
    base.in_gguf = !fs::exists(folder);
    std::shared_ptr<const GgufFile> gguf;
    if (base.in_gguf) gguf = GgufFile::open(folder.string() + ".gguf").value();
    base.config = base.in_gguf ? model_config_from_gguf(*gguf).value()
                               : model_config_from_file(folder.string()).value();
    base.architecture = find_architecture(base.config.architecture).value();
    if (base.in_gguf) {
      base.weights = std::make_shared<GgufWeightSource>(gguf);
    } else {
      const SafetensorsOptions options{.names = base.architecture->hf_names(),
                                       .tied_embeddings = base.config.tied_embeddings};
      base.weights = SafetensorsWeightSource::open(folder.string(), options).value();
    }
    base.model = base.load(*base.weights, device, compute);
    return base;
  }
  std::unique_ptr<Model> load(const WeightSource& source, Device& device,
                              ComputeType compute) const {
    ModelLoadOptions options{.compute = compute};
    options.adapter_rank_max = 8;
    return architecture->load(config, source, device, options).value();
  }
  LoraLoadOptions lora_options(DType dtype) const {
    return {.rank_max = 8, .dtype = dtype, .rows_interleaved = config.qk_rows_interleaved};
  }
};

std::vector<TokenId> some_tokens(int32_t count) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(3 + i * 11 % 80);
  return tokens;
}

std::vector<std::vector<float>> logits_of(Device& device, const Model& model,
                                          const std::vector<TokenId>& tokens,
                                          const LoraAdapter* adapter,
                                          const std::vector<int32_t>& steps,
                                          int32_t read_last = 0) {
  SequenceSession session(device, model, static_cast<int32_t>(tokens.size()));
  session.adapt(adapter);
  session.read_last(read_last);
  return session.run(tokens, steps).logits;
}

std::vector<double> log_probabilities(const float* logits, size_t count) {
  double largest = -HUGE_VAL, sum = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, double{logits[i]});
  for (size_t i = 0; i < count; ++i) sum += std::exp(logits[i] - largest);
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = logits[i] - largest - std::log(sum);
  return values;
}

double largest_difference(const std::vector<float>& a, const float* b) {
  const auto left = log_probabilities(a.data(), a.size()), right = log_probabilities(b, a.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(left[i] - right[i]));
  return largest;
}

TEST(LoraAdapter, LogProbabilitiesArePefts) {
  const auto device = create_cpu_device(2);
  for (const std::string name : {"llama-biases", "qwen2", "phi3", "gemma2"}) {
    SCOPED_TRACE(name);
    const auto file =
        SafetensorsFile::open((kAdapters / (name + ".expected.safetensors")).string());
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto values_of = [&](const char* tensor) { return (*file)->find(tensor)->bytes; };
    std::vector<int32_t> ids(values_of("tokens").size() / 4);
    std::memcpy(ids.data(), values_of("tokens").data(), ids.size() * 4);
    std::vector<float> expected(values_of("logits").size() / 4);
    std::memcpy(expected.data(), values_of("logits").data(), expected.size() * 4);
    const std::vector<TokenId> tokens(ids.begin(), ids.end());

    const BaseModel base = BaseModel::open(name, *device);
    const auto lora = read_lora_file((kAdapters / name).string(), base.architecture->hf_names());
    ASSERT_TRUE(lora.ok()) << lora.status().message();
    for (const DType dtype : {DType::kF32, DType::kF16}) {  // whose numbers are the file's
      const auto adapter =
          load_lora_adapter(*lora, base.model->adapter_sites(), *device, base.lora_options(dtype));
      ASSERT_TRUE(adapter.ok()) << adapter.status().message();
      const auto logits = logits_of(*device, *base.model, tokens, adapter->get(),
                                    {static_cast<int32_t>(tokens.size())});
      for (size_t row = 0; row < logits.size(); ++row) {
        EXPECT_LE(largest_difference(logits[row], &expected[row * logits[row].size()]), 1e-4)
            << row;
      }
    }
  }
}

// Every projection and every row, of families whose layers differ.
TEST(LoraAdapter, IsAsTheMergedWeights) {
  const auto device = create_cpu_device(2);
  const std::vector<TokenId> tokens = some_tokens(40);
  for (const std::string name : {"llama",       "llama-biases-gguf",
                                 "llama3-gguf", "qwen2",
                                 "qwen3",       "qwen3-gguf",
                                 "phi3",        "phi3-long-gguf",
                                 "gemma",       "gemma2",
                                 "gemma3-gguf", "granite",
                                 "smollm3",     "olmo2",
                                 "olmo3",       "starcoder2",
                                 "mistral",     "mixtral",
                                 "qwen3-moe",   "lfm2",
                                 "qwen35"}) {
    SCOPED_TRACE(name);
    const BaseModel base = BaseModel::open(name, *device);
    const auto sites = base.model->adapter_sites();
    ASSERT_FALSE(sites.empty());
    const LoraFile lora = dummy_lora(sites, {.rank = 5, .seed = 3, .deviation = 0.2f});
    const auto adapter =
        load_lora_adapter(lora, sites, *device, base.lora_options(DType::kF32)).value();
    EXPECT_EQ(adapter->rank(), 5);
    const MergedSource merged(base.weights, lora);
    const auto merged_model = base.load(merged, *device, ComputeType::kFloat32);
    const auto expected = logits_of(*device, *merged_model, tokens, nullptr, {40});
    const auto logits = logits_of(*device, *base.model, tokens, adapter.get(), {40});
    const auto plain = logits_of(*device, *base.model, tokens, nullptr, {40});
    double change = 0;
    for (size_t row = 0; row < logits.size(); ++row) {
      EXPECT_LE(largest_difference(logits[row], expected[row].data()), 2e-4) << row;
      change = std::max(change, largest_difference(logits[row], plain[row].data()));
    }
    EXPECT_GT(change, 0.1);
    // Steps of any size, and rows that are left out of the last layer.
    EXPECT_EQ(logits_of(*device, *base.model, tokens, adapter.get(), {1, 20, 3, 16}), logits);
    const auto last = logits_of(*device, *base.model, tokens, adapter.get(), {20, 20}, 3);
    ASSERT_EQ(last.size(), 6u);
    EXPECT_EQ(last.back(), logits.back());
  }
}

// PEFT's rows lie in Hugging Face's order, whatever the order of the model's file.
TEST(LoraAdapter, RowsOfPeftFitAModelOfInterleavedRows) {
  const auto device = create_cpu_device(1);
  const BaseModel base = BaseModel::open("llama-biases-gguf", *device);
  ASSERT_TRUE(base.config.qk_rows_interleaved);
  const auto sites = base.model->adapter_sites();
  const LoraFile as_gguf = dummy_lora(sites, {.rank = 4, .deviation = 0.2f});
  LoraFile as_peft = as_gguf;
  as_peft.rows_as_gguf = false;
  std::vector<std::vector<float>> turned;
  for (const MatrixStack& site : sites) {
    for (const MatrixStack::Rows& rows : site.rows) {
      if (rows.order.empty()) continue;
      const auto at = std::ranges::find(as_peft.pairs, rows.name + ".weight", &LoraPair::tensor);
      std::vector<float>& values = turned.emplace_back(static_cast<size_t>(rows.count * 4));
      for (int64_t n = 0; n < rows.count; ++n) {
        dequantise_row(at->b, rows.order[static_cast<size_t>(n)],
                       &values[static_cast<size_t>(n * 4)]);
      }
      at->b = ConstTensorView(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                              at->b.shape);
    }
  }
  EXPECT_EQ(turned.size(), 2u * 2u);  // q and k of two layers
  const auto options = base.lora_options(DType::kF32);
  const auto tokens = some_tokens(20);
  const auto a = load_lora_adapter(as_gguf, sites, *device, options).value();
  const auto b = load_lora_adapter(as_peft, sites, *device, options).value();
  EXPECT_EQ(logits_of(*device, *base.model, tokens, a.get(), {20}),
            logits_of(*device, *base.model, tokens, b.get(), {20}));
}

// In the fast path too, where products of quantised weights are integers.
TEST(LoraAdapter, ABatchOfNoAdapterIsAsWithoutAny) {
  const auto device = create_cpu_device(2);
  const BaseModel base = BaseModel::open("llama3-gguf", *device, ComputeType::kFast);
  ModelLoadOptions plain;
  const auto model = base.architecture->load(base.config, *base.weights, *device, plain).value();
  EXPECT_TRUE(model->adapter_sites().empty());
  const auto tokens = some_tokens(30);
  EXPECT_EQ(logits_of(*device, *base.model, tokens, nullptr, {30}),
            logits_of(*device, *model, tokens, nullptr, {30}));
  const LoraFile lora = dummy_lora(base.model->adapter_sites(), {.rank = 2});
  const auto adapter =
      load_lora_adapter(lora, base.model->adapter_sites(), *device, base.lora_options(DType::kF16))
          .value();
  EXPECT_EQ(logits_of(*device, *base.model, tokens, adapter.get(), {7, 23}),
            logits_of(*device, *base.model, tokens, adapter.get(), {30}));
}

class LoraErrors : public testing::Test {
 protected:
  std::string error(const LoraFile& file, const LoraLoadOptions& options = {.rank_max = 8}) {
    const auto adapter = load_lora_adapter(file, base_.model->adapter_sites(), *device_, options);
    return adapter.ok() ? "" : std::string(adapter.status().message());
  }
  const std::unique_ptr<Device> device_ = create_cpu_device(1);
  const BaseModel base_ = BaseModel::open("qwen2", *device_);
  LoraFile file_ = dummy_lora(base_.model->adapter_sites(), {.rank = 4});
};

TEST_F(LoraErrors, AnotherBaseNamesTheMatrix) {
  LoraPair& pair = file_.pairs.front();
  pair.a = ConstTensorView(pair.a.data, DType::kF32, Shape{4, pair.a.columns() - 1});
  const std::string message = error(file_);
  EXPECT_NE(message.find("the adapter is of another base model"), message.npos) << message;
  EXPECT_NE(message.find(pair.module_name), message.npos) << message;
}

TEST_F(LoraErrors, RanksHaveABound) {
  EXPECT_EQ(error(file_), "");
  const std::string message = error(file_, {.rank_max = 3});
  EXPECT_NE(message.find("rank 4 is over --max-lora-rank 3"), message.npos) << message;
}

TEST_F(LoraErrors, MatricesThatTakeNone) {
  file_.pairs.back().tensor = "output.weight";
  const std::string message = error(file_);
  EXPECT_NE(message.find("no adapter is supported on output.weight"), message.npos) << message;
}

TEST_F(LoraErrors, NumbersThatAreNone) {
  auto* const value = const_cast<float*>(reinterpret_cast<const float*>(file_.pairs[0].a.data));
  *value = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(error(file_).find("holds a NaN"), std::string::npos);
  *value = 1e6f;
  EXPECT_NE(error(file_).find("use --lora-dtype float32"), std::string::npos);
  EXPECT_EQ(error(file_, {.rank_max = 8, .dtype = DType::kF32}), "");
}

// What decides bits decides the key: adapters of one content share prefixes.
TEST_F(LoraErrors, KeysAreOfContent) {
  const auto key = [&](const LoraFile& file, const LoraLoadOptions& options) {
    return load_lora_adapter(file, base_.model->adapter_sites(), *device_, options).value()->key();
  };
  const uint64_t own = key(file_, {});
  LoraFile other = file_;
  other.path = "elsewhere";
  EXPECT_EQ(key(other, {}), own);
  other.pairs[1].scale *= 2;
  EXPECT_NE(key(other, {}), own);
  EXPECT_NE(key(file_, {.dtype = DType::kF32}), own);
  EXPECT_NE(key(file_, {.scale = 0.5}), own);
  EXPECT_NE(key(dummy_lora(base_.model->adapter_sites(), {.rank = 4, .seed = 1}), {}), own);
}

TEST_F(LoraErrors, MemoryIsAsPlanned) {
  const auto adapter =
      load_lora_adapter(file_, base_.model->adapter_sites(), *device_, {.rank_max = 8}).value();
  EXPECT_EQ(adapter->bytes(), lora_bytes_max(base_.model->adapter_sites(), 4, DType::kF16));
}

}  // namespace
}  // namespace headrace::lora_adapter_test
