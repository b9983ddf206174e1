#include "weights/gguf_type.h"

#include <array>

namespace headrace {
namespace {

constexpr auto kLayouts = std::to_array<GgufType>({
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {4, "Q4_2", 0, 0},        {5, "Q4_3", 0, 0},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},
    {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},   {14, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},         {25, "I16", 1, 2},        {26, "I32", 1, 4},
    {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {31, "Q4_0_4_4", 0, 0},   {32, "Q4_0_4_8", 0, 0},
    {33, "Q4_0_8_8", 0, 0},   {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},
    {36, "IQ4_NL_4_4", 0, 0}, {37, "IQ4_NL_4_8", 0, 0}, {38, "IQ4_NL_8_8", 0, 0},
    {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},
});

// What a type is here, whose name is the same; nothing where it has another layout.
constexpr std::optional<DType> dtype_of(const GgufType& type) {
  for (size_t i = 0; i < kDTypeInfo.size(); ++i) {
    const DTypeInfo& info = kDTypeInfo[i];
    if (info.name == type.name && info.block_elements == type.block_elements &&
        info.block_bytes == type.block_bytes) {
      return static_cast<DType>(i);
    }
  }
  return std::nullopt;
}

constexpr auto kTypes = [] {
  auto types = kLayouts;
  for (GgufType& type : types) type.dtype = dtype_of(type);
  return types;
}();

// The id is the index, and no type of ours has another layout than the type of its name.
constexpr bool table_is_consistent() {
  for (uint32_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].id != i) return false;
    for (const DTypeInfo& info : kDTypeInfo) {
      if (info.name == kTypes[i].name && !kTypes[i].dtype) return false;
    }
  }
  return true;
}
static_assert(table_is_consistent());

}  // namespace

const GgufType* find_gguf_type(uint32_t id) { return id < kTypes.size() ? &kTypes[id] : nullptr; }

std::span<const GgufType> gguf_types() { return kTypes; }

}  // namespace headrace
