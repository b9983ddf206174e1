#include "server/response_store.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

constexpr size_t kEntryBytes = 512;  // of what stands around the texts

}  // namespace

size_t StoredResponse::bytes() const {
  const size_t texts = response.size() + input_items.size() + output_items.size() + previous.size();
  return kEntryBytes + texts + (events ? events->bytes() : 0);
}

void ResponseStore::put(const std::string& owner, const std::string& id, StoredResponse response) {
  const size_t bytes = response.bytes();
  if (bytes > bytes_max_) return;
  std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[owner];
  const auto before = shelf.places.find(id);
  if (before != shelf.places.end()) drop(shelf, before->second);
  while (shelf.bytes + bytes > bytes_max_) drop(shelf, std::prev(shelf.entries.end()));
  shelf.entries.push_front({id, std::make_shared<const StoredResponse>(std::move(response))});
  shelf.places.insert_or_assign(id, shelf.entries.begin());
  shelf.bytes += bytes;
}

ResponseStore::Stored ResponseStore::find(const std::string& owner, const std::string& id) {
  std::lock_guard lock(mutex_);
  return use(shelves_[owner], id);
}

bool ResponseStore::erase(const std::string& owner, const std::string& id) {
  std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[owner];
  const auto place = shelf.places.find(id);
  if (place == shelf.places.end()) return false;
  drop(shelf, place->second);
  return true;
}

std::optional<std::vector<ResponseStore::Stored>> ResponseStore::conversation(
    const std::string& owner, const std::string& id) {
  std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[owner];
  std::vector<Stored> responses;
  for (std::string at = id; !at.empty(); at = responses.back()->previous) {
    Stored response = use(shelf, at);
    if (!response) return std::nullopt;
    responses.push_back(std::move(response));
  }
  std::reverse(responses.begin(), responses.end());
  return responses;
}

ResponseStore::Stored ResponseStore::use(Shelf& shelf, const std::string& id) {
  const auto place = shelf.places.find(id);
  if (place == shelf.places.end()) return nullptr;
  shelf.entries.splice(shelf.entries.begin(), shelf.entries, place->second);
  return place->second->response;
}

void ResponseStore::drop(Shelf& shelf, std::list<Entry>::iterator entry) {
  shelf.bytes -= entry->response->bytes();
  shelf.places.erase(entry->id);
  shelf.entries.erase(entry);
}

}  // namespace headrace
