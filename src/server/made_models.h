// Models that clients have made of served ones, as Ollama's create does: another name, with a
// system turn and parameters for requests that have none. In memory, gone with the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace headrace {

struct MadeModel {
  std::string name;  // without ":latest"
  std::string base;  // a served name
  std::string system;
  Json parameters = Json::object();  // Ollama's options
  int64_t created_unix_s = 0;

  // As a Modelfile says it.
  std::string parameters_text() const;
  std::string modelfile() const;
};

// Of the text of a Modelfile what /api/create takes in JSON. kInvalidArgument names the line.
Result<Json> modelfile_json(std::string_view text);

// The path of a route whose requests a made model may answer.
bool takes_made_models(std::string_view path);
// Makes of a request to the model one to its base: what it does not say itself, the model says.
// REQUIRES: takes_made_models(path)
void apply_made_model(const MadeModel& model, std::string_view path, Json& body);

// Any thread. An owner is whose API key it is (Caller::owner): nobody sees another's.
class MadeModels {
 public:
  using Made = std::shared_ptr<const MadeModel>;
  static constexpr size_t kPerOwnerMax = 64;

  // In the place of one of that name. kExhausted: the owner has as many as may be.
  Status put(const std::string& owner, MadeModel model);
  Made find(const std::string& owner, std::string_view name) const;  // nullptr: there is none
  bool erase(const std::string& owner, std::string_view name);
  std::vector<Made> all(const std::string& owner) const;  // by name

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Made> models_;
};

}  // namespace headrace
