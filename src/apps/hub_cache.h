// The cache in which Hugging Face's tools keep what they downloaded: a model that is in it can be
// named as on the hub. It is only read; nothing is fetched.
#pragma once

#include <string>

#include "base/status.h"

namespace headrace {

// Whether `name` is spelled like a model of the hub: "Qwen/Qwen3-0.6B".
bool is_hub_name(const std::string& name);

// The folder of the snapshot that `name`'s main revision stands for. The cache is $HF_HUB_CACHE,
// else $HF_HOME/hub, else huggingface/hub in the user's cache folder. kNotFound tells how to get
// the model. REQUIRES: is_hub_name(name)
Result<std::string> hub_snapshot(const std::string& name);

}  // namespace headrace
