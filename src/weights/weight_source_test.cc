#include "weights/weight_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tensor/quantised_row.h"
#include "weights/dummy_weights.h"
#include "weights/gguf_fixture.h"

namespace headrace::weight_source_test {
namespace {

TEST(GgufWeightSource, FindsTensorsByName) {
  const std::string data = tiny_llama().build();
  auto file = GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "t.gguf");
  ASSERT_TRUE(file.ok());
  const GgufWeightSource source(*file);
  EXPECT_EQ(source.names().size(), 11u);
  EXPECT_TRUE(source.has("blk.0.ffn_down.weight"));
  EXPECT_FALSE(source.has("output.weight"));
  auto view = source.get("blk.0.ffn_down.weight", Shape{32, 64});
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(view->dtype, DType::kQ8_0);
  source.release(*view);
  EXPECT_EQ(source.get("output.weight").status().message(),
            "t.gguf: tensor output.weight: missing");
  EXPECT_EQ(source.get("blk.0.ffn_down.weight", Shape{64, 32}).status().message(),
            "t.gguf: tensor blk.0.ffn_down.weight: shape [32, 64], the model's configuration needs "
            "[64, 32]");
}

TEST(GgufWeightSource, TakesANormOfANetworkThatIsNoWeightByName) {
  constexpr uint32_t kF32 = 0;
  const std::string data = GgufBuilder().add_tensor("blk.0.ffn_norm", {32}, kF32).build();
  auto file = GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "t.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const GgufWeightSource source(*file);
  EXPECT_EQ(source.names(), std::vector<std::string_view>{"blk.0.ffn_norm.weight"});
  EXPECT_TRUE(source.get("blk.0.ffn_norm.weight", Shape{32}).ok());
  EXPECT_FALSE(source.has("blk.0.ffn_norm.bias"));
  EXPECT_FALSE(source.has("blk.1.ffn_norm.weight"));
}

// Of Kimi Delta Attention: Ling 3's gates are one matrix, Kimi-Linear's two.
TEST(GgufWeightSource, TakesGatesOfOneMatrixByTheNameOfGates) {
  GgufBuilder builder;
  for (const char* name : {"blk.0.ssm_g_a", "blk.1.ssm_g_a", "blk.1.ssm_g_b"}) {
    builder.add_tensor(std::string(name) + ".weight", {32, 2}, 0);
  }
  const std::string data = builder.build();
  auto file = GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "t.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const GgufWeightSource source(*file);
  EXPECT_TRUE(source.has("blk.0.attn_gate.weight"));
  EXPECT_FALSE(source.has("blk.1.attn_gate.weight"));
  EXPECT_TRUE(source.has("blk.1.ssm_g_a.weight"));
}

class Dummy : public testing::Test {
 protected:
  static std::unique_ptr<DummyWeightSource> make(DType dtype, int threads = 1, uint64_t seed = 0) {
    auto source = DummyWeightSource::create(
        {{"a.weight", Shape{300, 256}}, {"b.weight", Shape{300, 256}}, {"norm.weight", Shape{257}}},
        {.dtype = dtype, .seed = seed, .threads = threads});
    CHECK(source.ok());
    return std::move(source).value();
  }
  static std::vector<float> floats(const ConstTensorView& view) {
    const auto bytes = static_cast<size_t>(*tensor_bytes(view.dtype, view.shape));
    std::vector<float> values(static_cast<size_t>(*view.shape.elements()));
    dequantise_row(view.dtype, {view.data, bytes}, values);
    return values;
  }
};

TEST_F(Dummy, IsNormalWithSigmaTwoPercent) {
  const auto source = make(DType::kF32);
  const std::vector<float> values = floats(*source->get("a.weight"));
  double sum = 0, squares = 0, fourths = 0, neighbours = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = static_cast<double>(values[i]) / 0.02;
    sum += v;
    squares += v * v;
    fourths += v * v * v * v;
    if (i > 0) neighbours += v * static_cast<double>(values[i - 1]) / 0.02;
  }
  const auto n = static_cast<double>(values.size());
  // Five standard errors each.
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourths / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(neighbours / n, 0, 5 / std::sqrt(n));
}

// As a table of a mixture is that names experts.
TEST_F(Dummy, WholeNumbersComeByTurns) {
  const auto source = DummyWeightSource::create(
      {{.name = "table.weight", .shape = Shape{5, 3}, .exact = true, .below = 7}},
      {.dtype = DType::kBF16});
  ASSERT_TRUE(source.ok());
  const std::vector<float> values = floats(*(*source)->get("table.weight"));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i % 7));
}

TEST_F(Dummy, VectorsLieAroundOne) {
  const auto source = make(DType::kQ4_1);
  const ConstTensorView norm = *source->get("norm.weight");
  EXPECT_EQ(norm.dtype, DType::kF32);
  for (const float value : floats(norm)) EXPECT_NEAR(value, 1, 0.15);
}

TEST_F(Dummy, ATensorsScaleMultipliesAllOfIt) {
  const auto scaled = DummyWeightSource::create({{"a.weight", Shape{300, 256}, 4.0f},
                                                 {"b.weight", Shape{300, 256}},
                                                 {"norm.weight", Shape{257}, 4.0f}},
                                                {.dtype = DType::kF32});
  ASSERT_TRUE(scaled.ok());
  const auto plain = make(DType::kF32);
  for (const char* name : {"a.weight", "b.weight", "norm.weight"}) {
    const float scale = name[0] == 'b' ? 1.0f : 4.0f;  // a power of two: nothing is rounded
    const std::vector<float> expected = floats(*plain->get(name));
    const std::vector<float> values = floats(*(*scaled)->get(name));
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(values[i], scale * expected[i]) << i;
  }
}

TEST_F(Dummy, AnElementDependsOnSeedNameAndIndexOnly) {
  const auto one = make(DType::kF32, 1), two = make(DType::kF32, 3),
             other = make(DType::kF32, 1, 9);
  const std::vector<float> values = floats(*one->get("a.weight"));
  EXPECT_EQ(values, floats(*two->get("a.weight")));
  EXPECT_NE(values, floats(*one->get("b.weight")));
  EXPECT_NE(values, floats(*other->get("a.weight")));
  for (const int64_t i : {int64_t{0}, int64_t{1}, int64_t{32767}, int64_t{32768}, int64_t{76799}}) {
    EXPECT_EQ(dummy_weight(0, "a.weight", i), values[static_cast<size_t>(i)]) << i;
  }
}

TEST_F(Dummy, EveryTypeHoldsTheSameValues) {
  const std::vector<float> exact = floats(*make(DType::kF32)->get("a.weight"));
  const std::pair<DType, float> bounds[] = {{DType::kF16, 1e-4f},
                                            {DType::kBF16, 5e-4f},
                                            {DType::kQ8_0, 5e-4f},
                                            {DType::kQ4_0, 1.5e-2f},
                                            {DType::kQ4_1, 1e-2f}};
  for (const auto& [dtype, bound] : bounds) {
    const auto source = make(dtype, 2);
    const ConstTensorView view = *source->get("a.weight");
    EXPECT_EQ(view.dtype, dtype);
    const std::vector<float> values = floats(view);
    for (size_t i = 0; i < exact.size(); ++i)
      ASSERT_NEAR(values[i], exact[i], bound) << dtype_name(dtype) << " " << i;
  }
}

TEST_F(Dummy, AMatrixOfAStackIsMadeAlone) {
  const auto source = DummyWeightSource::create({{"a.weight", Shape{3, 4, 64}},
                                                 {"router.weight", Shape{3, 64}, 1.0f, true}},
                                                {.dtype = DType::kQ8_0})
                          .value();
  EXPECT_EQ(source->get("router.weight")->dtype, DType::kF32);
  const ConstTensorView stack = *source->get("a.weight");
  const auto size = static_cast<size_t>(*tensor_bytes(DType::kQ8_0, Shape{4, 64}));
  for (int64_t e = 0; e < 3; ++e) {
    const ConstTensorView matrix = *source->get_matrix("a.weight", Shape{3, 4, 64}, e);
    EXPECT_EQ(matrix.shape, (Shape{4, 64}));
    EXPECT_EQ(std::memcmp(matrix.data, stack.data + static_cast<size_t>(e) * size, size), 0);
    source->release(matrix);
  }
}

TEST_F(Dummy, TensorsHaveTheirOwnMemoryUntilReleased) {
  const auto source = make(DType::kF16);
  const ConstTensorView a = *source->get("a.weight"), b = *source->get("b.weight");
  EXPECT_NE(a.data, b.data);
  EXPECT_EQ(source->get("a.weight")->data, a.data);
  const std::vector<float> before = floats(a);
  source->release(a);
  EXPECT_EQ(floats(*source->get("a.weight")), before);
  EXPECT_EQ(source->names(),
            (std::vector<std::string_view>{"a.weight", "b.weight", "norm.weight"}));
}

TEST(DummyWeights, TellsOfATensorWithoutMakingIt) {
  const auto source = DummyWeightSource::create({{"big.weight", Shape{1 << 20, 1 << 20}}}, {});
  ASSERT_TRUE(source.ok());
  const auto info = (*source)->info("big.weight");  // 2 TiB
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->bytes, int64_t{2} << 40);
  EXPECT_EQ(info->type, "BF16");
  EXPECT_FALSE((*source)->info("other").has_value());
}

TEST_F(Dummy, SaysWhatItCannotMake) {
  auto source = DummyWeightSource::create({{"odd.weight", Shape{4, 33}}}, {.dtype = DType::kQ8_0});
  EXPECT_EQ(source.status().message(),
            "dummy weights: tensor odd.weight: rows of shape [4, 33] are no whole blocks of Q8_0");
  EXPECT_EQ(make(DType::kF32)->get("c.weight").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace headrace::weight_source_test
