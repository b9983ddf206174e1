// The cache in which Hugging Face's tools keep what they downloaded: a model that is in it can be
// named as on the hub. It is only read here; hub/ fetches what is in it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/status.h"

namespace headrace {

// Whether `name` is spelled like a model of the hub: "Qwen/Qwen3-0.6B", or with a branch, tag or
// commit behind it, "Qwen/Qwen3-0.6B@v2".
bool is_hub_name(const std::string& name);

struct HubName {
  std::string maker, model;
  std::string revision;  // "main" where none is named
};
// REQUIRES: is_hub_name(name)
HubName hub_name_parts(const std::string& name);

// $HF_HUB_CACHE, else $HF_HOME/hub, else huggingface/hub in the user's cache folder; there or not.
std::filesystem::path hub_cache_folder();

// The folder of the snapshot that `name` stands for. kNotFound tells how to get the model.
// REQUIRES: is_hub_name(name)
Result<std::string> hub_snapshot(const std::string& name);

// Whether a file's name has the quant's as a word of its own, in any case: not "Q4_0" in
// "Q4_0_4_4".
bool names_quant(const std::string& file, const std::string& quant);

// Of "model-00001-of-00003", the stem of a file that is one of several: "model" and "00001".
struct SplitName {
  std::string whole, number;
};
std::optional<SplitName> split_name(const std::string& stem);

// A .gguf file of a snapshot, as llama.cpp's -hf names it: `repo` is "maker/model[:quant]"; `file`
// goes before the quant; `revision` may be empty. Without either: Q4_K_M, else the first by name.
Result<std::string> hub_gguf(const std::string& repo, const std::string& file,
                             const std::string& revision);

}  // namespace headrace
