// Fetching a model: what it is made of is asked first, then it comes, file by file, and is given
// its names when all of it is there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/file_download.h"
#include "hub/http_fetcher.h"
#include "stack/model_names.h"

namespace headrace {

struct PullOptions {
  std::function<bool()> stopped;  // any thread
  int64_t memory_bytes = 0;       // of the machine: which quant is taken where none is named
  int connections = 8;            // a file's, at most
};

// What is to come, and from where.
class ModelPull {
 public:
  // Asks the hub, the registry or the server of `name`, which is no path. The errors are lines for
  // the user; nothing has been written.
  static Result<ModelPull> plan(const ModelName& name, const PullOptions& options);

  int64_t bytes() const;          // of all files
  int64_t bytes_missing() const;  // of them, what is not on the disk
  const std::string& host() const { return host_; }
  // Fetches what is missing. `progress` is told of all bytes that are there, by the calling thread.
  // The result is what a model flag takes. Whatever ends it, under no final name lies half a file.
  Result<std::string> run(const PullOptions& options, const std::function<void(int64_t)>& progress);

 private:
  ModelPull() = default;
  Status plan_hub(HttpFetcher& fetcher, const ModelName& name, int64_t memory_bytes);
  Status plan_ollama(HttpFetcher& fetcher, const ModelName& name);
  Status plan_url(HttpFetcher& fetcher, const ModelName& name);
  Status check_space() const;
  Status link_snapshot() const;

  std::string host_, text_;
  std::vector<RemoteFile> files_;
  // Of the hub: the model's folder in the cache, and what its snapshot and ref are called.
  std::filesystem::path folder_;
  std::string commit_, revision_;
};

// "models--maker--model" in the hub's cache.
std::filesystem::path hub_model_folder(const std::string& repo);

}  // namespace headrace
