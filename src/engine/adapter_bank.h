// AdapterBank: the adapters of one model that requests can name. They come and go while requests
// run: one that is unloaded takes no new requests, and its memory goes with the last that uses it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/adapter.h"
#include "base/status.h"

namespace headrace {

struct AdapterSpec {
  std::string name;
  std::string path;
  double scale = 1.0;  // times that of the file (llama.cpp's --lora-scaled)
};

// Thread-safe. A load holds up other loads alone.
class AdapterBank {
 public:
  using Adapters = std::shared_ptr<const Adapter>;
  using Load = std::function<Result<Adapters>(const AdapterSpec& spec)>;

  struct Entry {
    AdapterSpec spec;
    Adapters adapter;
  };

  // At most `count_max` in memory, those included that only requests under way still use.
  AdapterBank(int32_t count_max, Load load) : count_max_(count_max), load_(std::move(load)) {}

  // kInvalidArgument: there is one of that name, no room for another, or what the load says.
  Status load(const AdapterSpec& spec);
  // One that is loaded already.
  Status add(const AdapterSpec& spec, Adapters adapter);
  // The same in place of one of that name, whose requests end with what they began with.
  Status replace(const AdapterSpec& spec);
  Status unload(std::string_view name);        // kNotFound: there is none
  Adapters find(std::string_view name) const;  // nullptr: there is none
  std::vector<Entry> list() const;             // in the order of their loads
  int32_t count_max() const { return count_max_; }

 private:
  Status check_room();
  Status check_name(std::string_view name) const;
  std::vector<Entry>::const_iterator place_of(std::string_view name) const;
  void keep(const AdapterSpec& spec, Adapters adapter);

  const int32_t count_max_;
  const Load load_;
  std::mutex loading_;        // one load at a time; taken before mutex_
  mutable std::mutex mutex_;  // of what follows
  std::vector<Entry> entries_;
  std::vector<std::weak_ptr<const Adapter>> in_memory_;
};

}  // namespace headrace
