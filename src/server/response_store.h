// Responses that clients may look at again or go on from: in memory, bounded for each API key, gone
// with the process.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/event_log.h"

namespace headrace {

struct StoredResponse {
  std::string response;     // JSON of the response
  std::string input_items;  // JSON: what it was made of besides those before it, an array
  std::string output_items;
  std::string previous;  // the id of the response that it goes on from; empty: none
  std::shared_ptr<EventLog> events = nullptr;  // of a stream in the background

  size_t bytes() const;
};

// Any thread. An owner is whose API key it is (Caller::owner): nobody sees another's.
class ResponseStore {
 public:
  using Stored = std::shared_ptr<const StoredResponse>;

  // 0: nothing is kept.
  explicit ResponseStore(size_t bytes_per_owner) : bytes_max_(bytes_per_owner) {}

  bool keeps_some() const { return bytes_max_ > 0; }
  // In place of one of that id. Those that were used the longest time ago make room. What is larger
  // than all of it is not kept, and what it was to replace stays.
  void put(const std::string& owner, const std::string& id, StoredResponse response);
  Stored find(const std::string& owner, const std::string& id);  // nullptr: there is none
  bool erase(const std::string& owner, const std::string& id);
  // The conversation that ends with `id`, the first response first; nothing where one is missing.
  std::optional<std::vector<Stored>> conversation(const std::string& owner, const std::string& id);

 private:
  struct Entry {
    std::string id;
    Stored response;
  };
  struct Shelf {
    std::list<Entry> entries;  // the one that was used last in front
    std::unordered_map<std::string, std::list<Entry>::iterator> places;
    size_t bytes = 0;
  };
  static Stored use(Shelf& shelf, const std::string& id);
  static void drop(Shelf& shelf, std::list<Entry>::iterator entry);

  const size_t bytes_max_;
  std::mutex mutex_;
  std::map<std::string, Shelf> shelves_;  // by owner
};

}  // namespace headrace
