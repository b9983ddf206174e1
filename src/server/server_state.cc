#include "server/server_state.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <chrono>

#include <fmt/format.h>

#include "base/check.h"
#include "server/generation_session.h"

namespace headrace {

bool ReadyModel::serves(std::string_view name) const {
  const auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return name.empty() || has(served.names) || has(served.other_names);
}

EngineStats ReadyModel::stats() const {
  if (generates()) return served.engine->stats();
  const EmbeddingStats embedder = served.embedder->stats();
  EngineStats stats;
  stats.steps = embedder.passes;
  stats.step_seconds_total = embedder.pass_seconds;
  stats.step_tokens_total = embedder.tokens;
  stats.scheduler.running = embedder.requests_running;
  stats.scheduler.waiting = embedder.requests_waiting;
  return stats;
}

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

std::vector<std::shared_ptr<const SessionProgress>> SessionRegistry::under_way() const {
  std::vector<std::shared_ptr<const SessionProgress>> result;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [_, entry] : sessions_) {
      if (entry.progress->admitted) result.push_back(entry.progress);
    }
  }
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a->id < b->id; });
  return result;
}

namespace {

// How the model of a chat writes calls and thoughts, and which control tokens that takes.
Status choose_output(const ServedModel& served, ReadyModel& ready) {
  const std::string_view source = served.chat_template->source();
  HR_ASSIGN_OR_RETURN(ready.output.tools, choose_tool_dialect(served.tool_call_parser, source));
  HR_ASSIGN_OR_RETURN(ready.output.reasoning,
                      choose_reasoning_dialect(served.reasoning_parser, source));
  const std::vector<std::string_view> marks = ready.output.marks();
  const Tokenizer& tokenizer = *served.tokenizer;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_control(id)) continue;
    const std::string_view text = tokenizer.vocab().tokens[static_cast<size_t>(id)];
    if (std::find(marks.begin(), marks.end(), text) != marks.end()) {
      ready.output_marks.push_back(id);
    }
  }
  return ok_status();
}

}  // namespace

Status ServerState::set_model(ServedModel served) {
  CHECK_MSG(!ready_, "a server serves one model");
  CHECK((served.engine != nullptr) != (served.embedder != nullptr) && !served.names.empty());
  auto ready = std::make_unique<ReadyModel>();
  if (served.engine && served.tokenizer && served.chat_template) {
    HR_ASSIGN_OR_RETURN(ready->chat,
                        ChatPromptEncoder::create(*served.tokenizer, *served.chat_template));
    HR_RETURN_IF_ERROR(choose_output(served, *ready));
  }
  if (served.tokenizer) ready->fill_in = find_fill_in_tokens(served.tokenizer->vocab());
  const auto block_tokens = [&] {
    return served.engine->options().scheduler.groups.front().block_tokens;
  };
  ready->metrics =
      std::make_unique<ServerMetrics>(served.names.front(), served.engine ? block_tokens() : 0);
  ready->served = std::move(served);
  if (ready->generates()) pins->set_engine(*ready->served.engine);
  ready_ = std::move(ready);
  model_.store(ready_.get(), std::memory_order_release);
  return ok_status();
}

JsonLimits ServerState::json_limits() const {
  JsonLimits json = limits.json;
  if (const ReadyModel* ready = model()) {
    json.element_count_max =
        std::max(json.element_count_max, 2 * static_cast<size_t>(ready->served.max_model_len));
  }
  return json;
}

std::string random_hex_id() {
  std::array<uint64_t, 2> bits{};
  // 16 bytes come whole or not at all, and wait only while the machine starts.
  CHECK(::getrandom(bits.data(), sizeof(bits), 0) == sizeof(bits));
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace headrace
