#include "server/ready_model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/adapter_bank.h"

namespace headrace {
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

// FNV-1a of what decides the bits of an answer.
std::string system_fingerprint(const EngineOptions& options) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c :
       fmt::format("{} {} {:016x}", HEADRACE_VERSION, options.kv_fingerprint, options.arithmetic)) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  }
  return fmt::format("fp_{:016x}", hash);
}

// A request's name means one thing.
Status check_adapter_names(const ServedModel& served) {
  for (const auto& entry : served.adapters->list()) {
    const std::string& name = entry.spec.name;
    if (name == served.adapter_of_all) continue;
    const auto is_own = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (is_own(served.names) || is_own(served.other_names)) {
      return invalid_argument(
          fmt::format("an adapter and the model are both called {}: name one of them otherwise",
                      name),
          "lora-modules");
    }
  }
  return ok_status();
}

}  // namespace

bool ReadyModel::serves_itself(std::string_view name) const {
  const auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return name.empty() || has(served.names) || has(served.other_names);
}

void ReadyModel::put_template_defaults(Json& variables) const {
  if (served.template_defaults.as_object().empty()) return;
  if (variables.is_null()) variables = Json::object();
  for (const auto& [name, value] : served.template_defaults.as_object()) {
    if (!variables.find(name)) variables.set(name, value);
  }
}

bool ReadyModel::serves(std::string_view name) const {
  return serves_itself(name) || (served.adapters != nullptr && served.adapters->find(name));
}

Result<std::shared_ptr<const Adapter>> ReadyModel::adapter_of(std::string_view name) const {
  if (served.adapters == nullptr) return std::shared_ptr<const Adapter>();
  if (serves_itself(name)) return served.adapters->find(served.adapter_of_all);
  auto adapter = served.adapters->find(name);
  if (adapter == nullptr)
    return not_found(
        fmt::format("there is no model \"{}\" here: /v1/models lists what is served", name),
        "model");
  return adapter;
}

std::string without_latest(std::string name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
  return name;
}

std::string served_name(const ReadyModel& model, std::string name) {
  return model.serves(name) ? name : without_latest(std::move(name));
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

Result<std::unique_ptr<ReadyModel>> make_ready_model(ServedModel served, const PinLimits& pins,
                                                     std::shared_ptr<ServerMetrics> metrics) {
  CHECK((served.engine != nullptr) != (served.embedder != nullptr) && !served.names.empty());
  auto ready = std::make_unique<ReadyModel>();
  if (served.adapters != nullptr) HR_RETURN_IF_ERROR(check_adapter_names(served));
  if (served.tokenizer && served.chat_template) {
    HR_ASSIGN_OR_RETURN(ready->chat,
                        ChatPromptEncoder::create(*served.tokenizer, *served.chat_template));
    if (served.engine) HR_RETURN_IF_ERROR(choose_output(served, *ready));
  }
  if (served.tokenizer) {
    ready->fill_in = find_fill_in_tokens(served.tokenizer->vocab());
    ready->break_tokens = std::make_unique<BreakTokens>(*served.tokenizer);
  }
  if (served.tokenizer && served.engine && served.engine->takes_constraints()) {
    ready->forms =
        std::make_unique<FormCache>(*served.tokenizer, ready->output_marks, served.ends_forms);
  }
  if (served.engine) ready->fingerprint = system_fingerprint(served.engine->options());
  ready->metrics = std::move(metrics);
  ready->served = std::move(served);
  ready->metrics->on_loaded(
      ready->generates() ? ready->served.engine->options().scheduler.groups.front().block_tokens
                         : 0);
  ready->pins = std::make_shared<CachePins>(pins);
  if (ready->generates()) ready->pins->set_engine(*ready->served.engine);
  return ready;
}

}  // namespace headrace
