// A model that is loaded, with what is derived from it once: what routes work on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/cache_pins.h"
#include "server/form_cache.h"
#include "server/served_model.h"
#include "server/server_limits.h"
#include "server/server_metrics.h"
#include "text/break_tokens.h"
#include "text/chat_prompt.h"
#include "text/fill_in_tokens.h"
#include "text/output/dialect.h"

namespace headrace {

// Immutable; what it points to may be used from any thread.
struct ReadyModel {
  ServedModel served;
  std::unique_ptr<ChatPromptEncoder> chat;  // nullptr when there is no template or tokenizer
  std::shared_ptr<ServerMetrics> metrics;   // outlives it: counts go on when it is loaded again
  std::shared_ptr<CachePins> pins;          // of its prefix cache
  std::string fingerprint;                  // of build, weights and arithmetic: "fp_" and hex
  OutputDialect output;                     // of chats
  std::vector<TokenId> output_marks;        // ascending: control tokens that are marks of it
  std::optional<FillInTokens> fill_in;
  std::unique_ptr<FormCache> forms;           // nullptr: answers have no form here
  std::unique_ptr<BreakTokens> break_tokens;  // nullptr: no tokenizer

  bool generates() const { return served.engine != nullptr; }
  int32_t vocab_size() const {
    return generates() ? served.engine->options().vocab_size
                       : served.embedder->runner().vocab_size();
  }
  // As Engine::health().
  Status health() const {
    if (generates()) return served.engine->health();
    return served.embedder->healthy() ? ok_status() : unavailable("the engine makes no progress");
  }
  bool healthy() const { return health().ok(); }
  EngineStats stats() const;                        // of an embedder: what it has of them
  bool serves_itself(std::string_view name) const;  // also by the empty name
  bool serves(std::string_view name) const;         // that, or an adapter
  // Sets what the operator says of a chat's template and the request does not. `variables`: an
  // object, or null.
  void put_template_defaults(Json& variables) const;
  // What a request of this name puts over the weights; nullptr: nothing. kNotFound: it was an
  // adapter's name, perhaps, and is no more.
  Result<std::shared_ptr<const Adapter>> adapter_of(std::string_view name) const;
};

// Ollama's names end in a tag; a model that is served without one is its latest. The name without
// that tag.
std::string without_latest(std::string name);
// The same where the model is not served by the whole name.
std::string served_name(const ReadyModel& model, std::string name);

// Keeps a model loaded for as long as it lives. Copies count as one. Any thread may end it.
using ModelLease = std::shared_ptr<const ReadyModel>;

// REQUIRES: an engine or an embedder, and a name. kInvalidArgument, kCorrupt: its template or the
// names of its parsers. On the calling thread.
Result<std::unique_ptr<ReadyModel>> make_ready_model(ServedModel served, const PinLimits& pins,
                                                     std::shared_ptr<ServerMetrics> metrics);

}  // namespace headrace
