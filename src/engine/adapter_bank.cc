#include "engine/adapter_bank.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace headrace {

// REQUIRES: mutex_
Status AdapterBank::check_room() {
  std::erase_if(in_memory_, [](const auto& each) { return each.expired(); });
  if (std::ssize(in_memory_) < count_max_) return ok_status();
  const auto leaving = std::ssize(in_memory_) - std::ssize(entries_);
  return invalid_argument(
      fmt::format("{} adapters are in memory{}, which is the most (--max-cpu-loras): unload one",
                  in_memory_.size(), leaving > 0 ? ", some for requests under way alone" : ""),
      "lora_name");
}

// REQUIRES: mutex_
std::vector<AdapterBank::Entry>::const_iterator AdapterBank::place_of(std::string_view name) const {
  return std::ranges::find_if(entries_, [&](const Entry& e) { return e.spec.name == name; });
}

// REQUIRES: mutex_
Status AdapterBank::check_name(std::string_view name) const {
  if (place_of(name) == entries_.end()) return ok_status();
  return invalid_argument(
      fmt::format("an adapter called {} is loaded: unload it, or name this one otherwise", name),
      "lora_name");
}

// REQUIRES: mutex_
void AdapterBank::keep(const AdapterSpec& spec, Adapters adapter) {
  in_memory_.push_back(adapter);
  entries_.push_back({spec, std::move(adapter)});
}

Status AdapterBank::load(const AdapterSpec& spec) {
  const std::lock_guard loading(loading_);
  {
    const std::lock_guard lock(mutex_);
    HR_RETURN_IF_ERROR(check_name(spec.name));
    HR_RETURN_IF_ERROR(check_room());
  }
  HR_ASSIGN_OR_RETURN(Adapters adapter, load_(spec));
  const std::lock_guard lock(mutex_);
  keep(spec, std::move(adapter));
  return ok_status();
}

Status AdapterBank::add(const AdapterSpec& spec, Adapters adapter) {
  const std::lock_guard loading(loading_);
  const std::lock_guard lock(mutex_);
  HR_RETURN_IF_ERROR(check_name(spec.name));
  HR_RETURN_IF_ERROR(check_room());
  keep(spec, std::move(adapter));
  return ok_status();
}

Status AdapterBank::replace(const AdapterSpec& spec) {
  const std::lock_guard loading(loading_);
  {
    const std::lock_guard lock(mutex_);
    HR_RETURN_IF_ERROR(check_room());
  }
  HR_ASSIGN_OR_RETURN(Adapters adapter, load_(spec));
  Adapters before;  // destroyed without the mutex
  const std::lock_guard lock(mutex_);
  const auto at = place_of(spec.name);
  if (at == entries_.end()) {
    keep(spec, std::move(adapter));
  } else {
    Entry& entry = entries_[static_cast<size_t>(at - entries_.begin())];
    in_memory_.push_back(adapter);
    before = std::exchange(entry.adapter, std::move(adapter));
    entry.spec = spec;
  }
  return ok_status();
}

Status AdapterBank::unload(std::string_view name) {
  Adapters gone;  // destroyed without the mutex
  const std::lock_guard lock(mutex_);
  const auto at = place_of(name);
  if (at == entries_.end()) {
    return not_found(fmt::format("no adapter is called {}", name), "lora_name");
  }
  gone = at->adapter;
  entries_.erase(at);
  return ok_status();
}

AdapterBank::Adapters AdapterBank::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto at = place_of(name);
  return at == entries_.end() ? nullptr : at->adapter;
}

std::vector<AdapterBank::Entry> AdapterBank::list() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

}  // namespace headrace
