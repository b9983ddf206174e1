// model.safetensors.index.json: which shard of a folder holds which tensor.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace headrace {

// Names of tensors by the shard that holds them: at most 10,000 shards, each the plain name of a
// .safetensors file, so that no index leads out of its folder.
using ShardTensors = std::map<std::string, std::vector<std::string>, std::less<>>;

// `name` is for errors, which are "name: field: what".
Result<ShardTensors> parse_safetensors_index(std::string_view text, std::string_view name);
// The same from a file of at most 64 MiB.
Result<ShardTensors> read_safetensors_index(const std::string& path);

}  // namespace headrace
