// /v1/messages and /v1/messages/count_tokens, as Anthropic's API has them.
#include <memory>
#include <utility>

#include "server/error_response.h"
#include "server/generation_handlers.h"
#include "server/generation_plan.h"
#include "server/handlers.h"
#include "server/messages_format.h"
#include "server/messages_request.h"

namespace headrace {
namespace {

constexpr std::string_view kPromptName = "messages";

// What is said of thinking, as far as the model's template reads it: it is a wish, and clients send
// it to whatever model there is.
void settle_thinking(const ReadyModel& model, MessagesRequest& request) {
  if (!model.chat) return;
  if (!model.chat->may_read("reasoning_effort")) request.chat.reasoning_effort.clear();
  if (!request.thinking || !model.chat->may_read("enable_thinking")) return;
  Json& variables = request.chat.template_variables;
  if (variables.is_null()) variables = Json::object();
  if (!variables.find("enable_thinking")) variables.set("enable_thinking", *request.thinking);
}

// max_tokens, which each request must name, is the most that is wanted: where the context leaves
// less, the answer ends with it.
Result<GenerationPlan> plan_messages(const ReadyModel& model, const FieldContext& context,
                                     const Json& body) {
  HR_ASSIGN_OR_RETURN(MessagesRequest request, parse_messages_request(body, context));
  settle_thinking(model, request);
  const int32_t max_tokens =
      std::exchange(request.chat.settings.max_tokens, std::nullopt).value_or(0);
  const MessageBounds bounds{.max_tokens = max_tokens, .context = model.served.max_model_len};
  return with_named_length(plan_chat(
      model, std::move(request.chat),
      {.id_prefix = "msg_",
       .make_format =
           [bounds](AnswerHead head) { return make_messages_format(std::move(head), bounds); },
       .max_tokens_otherwise = max_tokens,
       .prompt_name = kPromptName}));
}

Result<Json> count_tokens_json(const ReadyModel& model, const FieldContext& context,
                               const Json& body) {
  HR_ASSIGN_OR_RETURN(MessagesRequest request, parse_count_tokens_request(body, context));
  settle_thinking(model, request);
  HR_ASSIGN_OR_RETURN(const int64_t count,
                      count_chat_tokens(model, std::move(request.chat), kPromptName));
  return Json::object().set("input_tokens", count);
}

}  // namespace

void handle_messages(RouteCall& call) { generate(call, plan_messages); }

void handle_count_tokens(RouteCall& call) {
  const Result<Json> json =
      count_tokens_json(*call.model, call.state.context_of(*call.model), call.body);
  if (!json.ok()) return call.exchange->respond(bad_request_response(json.status()));
  respond_json(call, *json);
}

}  // namespace headrace
