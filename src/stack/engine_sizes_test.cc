#include "stack/engine_sizes.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace::engine_sizes_test {
namespace {

// Archives of keys and values stay those of these texts, whatever numbers a build's enums have.
TEST(ArithmeticText, NamesWhatDecidesBits) {
  LoadOptions options;
  EXPECT_EQ(
      arithmetic_text({}, DType::kF32, DeviceKind::kCpu, options),
      "F32, kept F16/F16, of the file's types on cpu, activations of 8 bits, quantised to nothing, "
      "blocks auto");
  options.dtype = DType::kBF16;
  options.quantise_to = DType::kF8;
  options.block_weights = BlockWeights::kPacked;
  options.activation_bits = 16;
  EXPECT_EQ(arithmetic_text({KvFormat::kInt8Head, KvFormat::kInt4Head}, DType::kBF16,
                            DeviceKind::kCuda, options),
            "BF16, kept INT8 of a head/INT4 of a head, of BF16 on gpu, activations of 16 bits, "
            "quantised to F8_E4M3, blocks packed");
}

TEST(ArithmeticText, EveryChoiceIsAnother) {
  const LoadOptions plain;
  std::set<std::string> texts;
  for (int format = 0; format <= static_cast<int>(KvFormat::kInt4Head); ++format) {
    const auto kept = static_cast<KvFormat>(format);
    texts.insert(arithmetic_text({kept, KvFormat::kF32}, DType::kF32, DeviceKind::kCpu, plain));
  }
  EXPECT_EQ(texts.size(), 8u);
  texts.clear();
  for (const auto& [name, type] : kQuantizations) {
    LoadOptions options;
    options.quantise_to = type;
    texts.insert(arithmetic_text({}, DType::kF32, DeviceKind::kCpu, options));
  }
  for (const auto& [name, blocks] : kBlockWeights) {
    LoadOptions options;
    options.block_weights = blocks;
    texts.insert(arithmetic_text({}, DType::kF32, DeviceKind::kCpu, options));
  }
  texts.insert(arithmetic_text({}, DType::kBF16, DeviceKind::kCuda, plain));
  texts.insert(arithmetic_text({}, DType::kF32, DeviceKind::kNull, plain));
  std::set<std::optional<DType>> types;
  for (const auto& [name, type] : kQuantizations) types.insert(type);
  // "auto" and "none" are the plain one.
  EXPECT_EQ(texts.size(), types.size() + std::size(kBlockWeights) - 1 + 2);
}

}  // namespace
}  // namespace headrace::engine_sizes_test
