// LoadOptions: how a model's weights come into memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/named.h"
#include "tensor/dtype.h"

namespace headrace {

enum class LoadFormat : uint8_t {
  kAuto,         // whatever the source has
  kGguf,         // that and no other
  kSafetensors,  // likewise
  kHuggingFace,  // the same by another name
  kDummy,        // random weights in the shape of the model
};
inline constexpr Named<LoadFormat> kLoadFormats[] = {
    {"auto", LoadFormat::kAuto},
    {"gguf", LoadFormat::kGguf},
    {"safetensors", LoadFormat::kSafetensors},
    {"hf", LoadFormat::kHuggingFace},
    {"dummy", LoadFormat::kDummy},
};

// What --dtype may be. Dummy weights may be of other types too (is_dummy_dtype()).
inline constexpr Named<std::optional<DType>> kArithmeticTypes[] = {
    {"auto", std::nullopt},   {"float32", DType::kF32}, {"float", DType::kF32},
    {"float16", DType::kF16}, {"half", DType::kF16},    {"bfloat16", DType::kBF16},
};

// What float matrices may be quantised to while they are packed.
inline constexpr Named<std::optional<DType>> kQuantizations[] = {
    {"none", std::nullopt}, {"q8_0", DType::kQ8_0}, {"q4_0", DType::kQ4_0},
    {"q4_k", DType::kQ4_K}, {"fp8", DType::kF8},
};

enum class PackedCacheUse : uint8_t {
  kOff,
  kAuto,  // for weights of middle size where the disk has ample room
  kOn,
};
inline constexpr Named<PackedCacheUse> kPackedCacheUses[] = {
    {"off", PackedCacheUse::kOff},
    {"auto", PackedCacheUse::kAuto},
    {"on", PackedCacheUse::kOn},
};

enum class PackTime : uint8_t {
  kStart,  // for good, at the start
  kUse,    // behind the first step
};
inline constexpr Named<PackTime> kPackTimes[] = {
    {"start", PackTime::kStart},
    {"use", PackTime::kUse},
};

// How weights of block types lie in a GPU's memory.
enum class BlockWeights : uint8_t {
  kAuto,      // packed, unless 16 bits a weight take next to nothing of the memory
  kPacked,    // as in the file
  kUnpacked,  // 16 bits a weight
};
inline constexpr Named<BlockWeights> kBlockWeights[] = {
    {"auto", BlockWeights::kAuto},
    {"packed", BlockWeights::kPacked},
    {"unpacked", BlockWeights::kUnpacked},
};

struct LoadOptions {
  LoadFormat format = LoadFormat::kAuto;
  std::string architecture_map;      // path of a map for a class that is not known; empty: none
  std::optional<DType> dtype;        // empty: the fast path of the file's types; F32: all in fp32
  int32_t activation_bits = 8;       // CPU, block types: 8 (and 16 for outliers) or 16 throughout
  std::optional<DType> quantise_to;  // of float matrices on load: Q8_0, Q4_0, Q4_K, F8
  BlockWeights block_weights = BlockWeights::kAuto;    // GPU
  PackedCacheUse packed_cache = PackedCacheUse::kOff;  // CPU: packed weights in a file
  std::string packed_cache_folder;                     // empty: "packed" in the user's cache folder
  PackTime pack_weights = PackTime::kStart;            // CPU
  uint64_t dummy_seed = 0;
  double dummy_sharpness = 1.0;  // dummy queries and keys times so much
};

}  // namespace headrace
