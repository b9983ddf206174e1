#include "server/server_state.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/check.h"
#include "server/generation_session.h"

namespace headrace {

void SessionRegistry::add(const std::shared_ptr<GenerationSession>& session,
                          std::shared_ptr<SessionProgress> progress) {
  std::lock_guard lock(mutex_);
  progress->id = ++last_id_;
  sessions_.insert_or_assign(session.get(), Entry{session, std::move(progress)});
}

void SessionRegistry::remove(GenerationSession* session) {
  std::lock_guard lock(mutex_);
  sessions_.erase(session);
}

size_t SessionRegistry::count() const {
  std::lock_guard lock(mutex_);
  return sessions_.size();
}

std::vector<std::shared_ptr<GenerationSession>> SessionRegistry::alive() const {
  std::vector<std::shared_ptr<GenerationSession>> result;
  std::lock_guard lock(mutex_);
  for (const auto& [_, entry] : sessions_) {
    if (auto session = entry.session.lock()) result.push_back(std::move(session));
  }
  return result;
}

std::vector<std::shared_ptr<const SessionProgress>> SessionRegistry::under_way(
    const ReadyModel& model) const {
  std::vector<std::shared_ptr<const SessionProgress>> result;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [_, entry] : sessions_) {
      if (entry.progress->admitted && entry.progress->model == &model)
        result.push_back(entry.progress);
    }
  }
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a->id < b->id; });
  return result;
}

std::map<std::string, SessionRegistry::OpenCounts> SessionRegistry::by_tenant() const {
  std::map<std::string, OpenCounts> counts;
  std::lock_guard lock(mutex_);
  for (const auto& [_, entry] : sessions_) {
    OpenCounts& tenant = counts[entry.progress->tenant];
    ++(entry.progress->admitted ? tenant.running : tenant.waiting);
  }
  return counts;
}

std::map<uint64_t, SessionRegistry::OpenCounts> SessionRegistry::by_adapter(
    const ReadyModel& model) const {
  std::map<uint64_t, OpenCounts> counts;
  std::lock_guard lock(mutex_);
  for (const auto& [_, entry] : sessions_) {
    if (entry.progress->model != &model || entry.progress->adapter == 0) continue;
    OpenCounts& adapter = counts[entry.progress->adapter];
    ++(entry.progress->admitted ? adapter.running : adapter.waiting);
  }
  return counts;
}

Status ServerState::set_model(ServedModel served) {
  ServedModelSpec spec{
      .names = served.names, .other_names = served.other_names, .facts = served.facts};
  return models.open({}, {std::move(spec)}, ModelInstance{std::move(served), nullptr});
}

JsonLimits ServerState::json_limits() const {
  JsonLimits json = limits.json;
  json.element_count_max =
      std::max(json.element_count_max, 2 * static_cast<size_t>(models.longest_context()));
  return json;
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace headrace
