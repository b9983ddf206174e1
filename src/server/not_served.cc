#include "server/not_served.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/check.h"
#include "server/error_response.h"
#include "server/handlers.h"

namespace headrace {
namespace {

constexpr std::string_view kModelsAtStart =
    "models are named when the server is started (headrace serve -m MODEL, --models-dir; /api/tags "
    "lists them), and none is made of files; /api/pull fetches some where the server has "
    "--allow-pull";
constexpr std::string_view kNothingSent = "nothing is sent to a registry";
constexpr std::string_view kScalesFixed =
    "an adapter's scale is that of the start (--lora-scaled); requests choose adapters by their "
    "model field";
constexpr std::string_view kProfiled =
    "headrace bench and a profiler around it measure; /metrics and --otlp-traces-endpoint tell of "
    "a running server";
constexpr std::string_view kClosing = "closing the connection of a request cancels it";
constexpr std::string_view kNoPause = "/sleep and /wake_up are what there is";
constexpr std::string_view kRendered =
    "/apply-template gives the text of a chat and /tokenize its ids";
constexpr std::string_view kTextOnly = "models read and write text here";
constexpr std::string_view kNothingTrained = "models are served as they are";
constexpr std::string_view kStateless =
    "/v1/responses with previous_response_id keeps conversations, and tools are the client's";

struct Reason {
  std::string_view route;
  std::string_view why;
};
constexpr Reason kReasons[] = {
    // Ollama
    {"/api/push", kNothingSent},
    {"/api/blobs/{id}", kModelsAtStart},
    // llama.cpp
    {"/slots/{id}",
     "slots are not saved, restored or erased: the prefix cache keeps prompts by what they hold "
     "(--kv-save also over a restart)"},
    {"/lora-adapters", kScalesFixed},
    {"/models", kModelsAtStart},
    // vLLM and SGLang
    {"/start_profile", kProfiled},
    {"/stop_profile", kProfiled},
    {"/pause", kNoPause},
    {"/resume", kNoPause},
    {"/abort_requests", kClosing},
    {"/abort_request", kClosing},
    {"/v1/chat/completions/render", kRendered},
    {"/v1/completions/render", kRendered},
    {"/inference/v1/generate", "/v1/completions takes token ids as its prompt"},
    // OpenAI
    {"/v1/audio/transcriptions", kTextOnly},
    {"/v1/audio/translations", kTextOnly},
    {"/v1/audio/speech", kTextOnly},
    {"/v1/images/generations", kTextOnly},
    {"/v1/images/edits", kTextOnly},
    {"/v1/moderations", kNothingTrained},
    {"/v1/fine_tuning/jobs", kNothingTrained},
    {"/v1/assistants", kStateless},
    {"/v1/threads", kStateless},
    {"/v1/conversations", kStateless},
    {"/v1/vector_stores", kStateless},
    {"/v1/responses/compact", "send the items that the model shall see"},
};

const Reason* refusal_row(std::string_view route) {
  const auto found = std::find_if(std::begin(kReasons), std::end(kReasons),
                                  [&](const Reason& each) { return each.route == route; });
  return found == std::end(kReasons) ? nullptr : found;
}

}  // namespace

HttpResponse not_served(std::string_view route) {
  const Reason* reason = refusal_row(route);
  CHECK_MSG(reason, "a route that is not served has no reason");
  return error_response(400, fmt::format("{} is not supported: {}", route, reason->why));
}

bool has_reason_not_served(std::string_view route) { return refusal_row(route) != nullptr; }

// The router has answered before.
void handle_not_served(RouteCall&) { CHECK_MSG(false, "a route that is not served was handled"); }

}  // namespace headrace
