// A mapping file (--architecture-map): a class of config.json that is not known, of parts that are.
//   {"class": "AcmeForCausalLM",              config.json's architectures[0]
//    "like": "LlamaForCausalLM",              the known class whose layers it has
//    "config": {"hidden_size": "d_model"},    a key of that class: where this file has it ("a.b":
//    in an object) "values": {"rms_norm_eps": 1e-5},        a key of that class that this file says
//    nothing of "tensors": {"model.layers.{}.self_attn.q_proj.weight": "h.{}.attn.q.weight"}}
//    likewise of tensors
// What it does not name is as the known class has it.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "weights/hf_names.h"

namespace headrace {

// A table of names that owns what its rows point to.
struct MappedNames {
  std::deque<std::string> strings;
  std::vector<HfTensorName> rows;
};

class ArchitectureMap {
 public:
  // Errors name the file, and the member that is wrong.
  static Result<ArchitectureMap> read(const std::string& path);
  static Result<ArchitectureMap> from_json(const Json& json, std::string_view path);

  // config.json as the known class would have it. kInvalidArgument: it is of another class, or has
  // no such key.
  Result<Json> apply(const Json& config) const;
  // The names of the known class, `known`, with this file's in their place. kInvalidArgument: a
  // name that the class does not have.
  Result<std::shared_ptr<const MappedNames>> names(HfTensorNames known) const;

 private:
  struct Pair {
    std::string known, own;
  };
  Status wrong(std::string_view member, std::string_view what) const;
  Result<std::vector<Pair>> pairs(const Json& json, std::string_view member) const;
  Status check_tensors() const;

  std::string path_;
  std::string own_class_, known_class_;
  std::vector<Pair> keys_, tensors_;
  Json values_ = Json::object();
};

}  // namespace headrace
