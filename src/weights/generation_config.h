// The sampling that a model's makers suggest: generation_config.json of a Hugging Face folder,
// general.sampling.* of a GGUF file.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/sampling_defaults.h"
#include "base/status.h"
#include "weights/gguf.h"

namespace headrace {

// "temperature", "top_p", ...: the keys that are read.
std::span<const std::string_view> generation_config_keys();

// `json`: an object; keys that are not known and nulls are passed over. kCorrupt names `path`, the
// key and its range.
Result<SamplingDefaults> sampling_defaults_from_json(const Json& json, std::string_view path);
Result<SamplingDefaults> sampling_defaults_from_gguf(const GgufFile& file);

// "temperature 0.7, top_p 0.8"; empty where nothing is set.
std::string to_string(const SamplingDefaults& defaults);

}  // namespace headrace
