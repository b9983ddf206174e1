// What a Hugging Face folder says of its quantised weights: `quantization_config` of config.json in
// the spellings of GPTQ, AWQ, compressed-tensors, FP8 and BitNet, or the files that older tools
// wrote beside it. Bits, groups and which matrices are quantised at all are seen in the tensors
// themselves (hub_matrix.h), so that lists of modules that were left out, and mixed formats, need
// no reading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace headrace {

enum class HubMethod : uint8_t {
  kGptq,               // M.qweight, M.qzeros, M.scales, M.g_idx; packed along the columns
  kAwq,                // the first three; packed along the rows ("gemm")
  kCompressedTensors,  // M.weight_packed or M.weight, M.weight_scale, M.weight_zero_point, ...
  kModelOpt,           // FP8 and NVFP4: M.weight, M.weight_scale, M.weight_scale_2
  kFp8,                // M.weight and M.weight_scale_inv or M.weight_scale
  kBitNet,             // M.weight of four ternary rows a row, M.weight_scale (hub_ternary.h)
  kMxfp4,              // gpt-oss: M_blocks and M_scales of stacks of experts (hub_experts.h)
};

struct HubQuantisation {
  HubMethod method = HubMethod::kFp8;
  int32_t bits = 0;             // of GPTQ and AWQ: 4 or 8; of others seen in each tensor
  bool zeros_less_one = false;  // GPTQ before version 2: zero points are stored less 1
  bool divides = false;         // BitNet: weights are divided by their scale
  int32_t block_rows = 128;     // that share a scale of FP8, where scales are of blocks
  int32_t block_columns = 128;
};

// `config`: the object under `quantization_config`. Errors name `path` and the key: a method or an
// option of it that cannot be read (kUnsupported), or a value of a wrong type (kCorrupt).
Result<HubQuantisation> hub_quantisation_from_json(const Json& config, std::string_view path);

// Of a folder: what its config.json says, or quantize_config.json (AutoGPTQ), quant_config.json
// (AutoAWQ) or hf_quant_config.json (modelopt); empty: its weights are plain, or there is no
// config.json.
Result<std::optional<HubQuantisation>> hub_quantisation_of_folder(const std::string& folder);

}  // namespace headrace
