// A Hugging Face folder as a ModelSource: config.json, generation_config.json, safetensors,
// tokenizer.json with tokenizer_config.json, and the chat template where one of these or
// chat_template.jinja has it.
#pragma once

#include <memory>
#include <string>

#include "stack/model_source.h"

namespace headrace {

// `path`: the folder, its config.json, or a .safetensors file in it (then only that file's weights
// are read). `map`: of an architecture map, or empty.
Result<std::unique_ptr<ModelSource>> open_hf_folder(const std::string& path,
                                                    const std::string& map = "");

// What the generation_config.json of a folder says of sampling. kNotFound: there is none.
Result<SamplingDefaults> sampling_of_folder(const std::string& folder);

}  // namespace headrace
