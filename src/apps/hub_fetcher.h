// What a server's clients may fetch by /api/pull (--allow-pull): models of the hub and of Ollama's
// registry, as `headrace pull` fetches them, with a link in the server's folder of models.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "apps/served_models.h"
#include "server/model_fetches.h"

namespace headrace {

class HubFetcher final : public ModelFetcher {
 public:
  using MakeSpec = std::function<Result<ServedModelSpec>(const NamedModel&)>;

  // `folder`: that of --models-dir. `make_spec` of what has come, on the calling thread.
  HubFetcher(std::filesystem::path folder, MakeSpec make_spec)
      : folder_(std::move(folder)), make_spec_(std::move(make_spec)) {}

  // Files and addresses are refused: clients would learn what there is on this machine and around
  // it.
  Result<ServedModelSpec> fetch(const std::string& name, const std::function<bool()>& stopped,
                                const Progress& progress) override;

 private:
  void keep(const std::string& name, const std::string& place) const;

  const std::filesystem::path folder_;
  const MakeSpec make_spec_;
};

}  // namespace headrace
