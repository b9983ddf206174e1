// The flags that make a model give vectors or scores: vLLM's --runner, --convert, --task,
// --pooler-config and --hf-overrides, llama.cpp's --embedding, --pooling and --reranking.
#pragma once

#include <string_view>

#include <CLI/CLI.hpp>

#include "base/status.h"
#include "stack/pooling_options.h"

namespace headrace {

// Before add_model_flags(), which adds what is not there as flags of other programs.
void add_pooling_flags(CLI::App& app, PoolingOptions& options);

// {"pooling_type": "LAST", "normalize": true}; kInvalidArgument names the field.
Status read_pooler_config(std::string_view json, PoolingOptions& options);
// {"classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": true}; likewise.
Status read_hf_overrides(std::string_view json, PoolingOptions& options);

}  // namespace headrace
