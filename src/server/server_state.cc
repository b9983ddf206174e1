#include "server/server_state.h"

#include <algorithm>
#include <chrono>
#include <random>

#include <fmt/format.h>

#include "base/rng.h"
#include "server/generation_session.h"

namespace headrace {

bool ReadyModel::serves(std::string_view name) const {
  return name.empty() ||
         std::find(served.names.begin(), served.names.end(), name) != served.names.end();
}

void SessionRegistry::add(const std::shared_ptr<GenerationSession>& session) {
  std::lock_guard lock(mutex_);
  sessions_.emplace(session.get(), session);
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
  for (const auto& [_, weak] : sessions_) {
    if (auto session = weak.lock()) result.push_back(std::move(session));
  }
  return result;
}

Status ServerState::set_model(ServedModel served) {
  CHECK_MSG(!ready_, "a server serves one model");
  CHECK(served.engine && !served.names.empty());
  auto ready = std::make_unique<ReadyModel>();
  if (served.tokenizer && served.chat_template) {
    HR_ASSIGN_OR_RETURN(ready->chat,
                        ChatPromptEncoder::create(*served.tokenizer, *served.chat_template));
  }
  ready->metrics = std::make_unique<ServerMetrics>(served.names.front());
  ready->served = std::move(served);
  pins->set_engine(*ready->served.engine);
  ready_ = std::move(ready);
  model_.store(ready_.get(), std::memory_order_release);
  return ok_status();
}

std::string random_hex_id() {
  static const uint64_t process_seed = [] {
    std::random_device device;
    return (static_cast<uint64_t>(device()) << 32) | device();
  }();
  static std::atomic<uint64_t> counter{0};
  const uint64_t n = counter.fetch_add(1, std::memory_order_relaxed);
  // mix64 is a bijection: two ids of one process differ in their first half.
  return fmt::format("{:016x}{:016x}", mix64(process_seed ^ n), mix64(~process_seed + n));
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace headrace
