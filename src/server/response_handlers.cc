// /v1/responses, as OpenAI's Responses API has it.
#include <algorithm>
#include <string>
#include <utility>

#include "server/error_response.h"
#include "server/generation_handlers.h"
#include "server/generation_plan.h"
#include "server/handlers.h"
#include "server/query.h"
#include "server/response_format.h"
#include "server/response_request.h"
#include "server/stored_json.h"

namespace headrace {
namespace {

constexpr int64_t kItemsListed = 20, kItemsListedMax = 100;

std::string owner_of(const RouteCall& call) { return call.caller.owner(call.state.keys); }

// Of the items of a conversation together. Those of one response have fewer, by the limits of
// bodies and what is added when they are shown.
constexpr JsonLimits kStoredItems{.key_count_max = 250'000, .element_count_max = 250'000};

// The items of what a request goes on from, response by response.
Result<std::vector<Json>> earlier_items(ResponseStore& store, const std::string& owner,
                                        const std::string& previous) {
  std::vector<Json> all;
  if (previous.empty()) return all;
  const auto conversation = store.conversation(owner, previous);
  if (!conversation) {
    return not_found(
        "the response of previous_response_id, or one before it, is not stored here any more: send "
        "the items of the conversation",
        "previous_response_id");
  }
  JsonLimits left = kStoredItems;
  for (const ResponseStore::Stored& response : *conversation) {
    for (const std::string* items : {&response->input_items, &response->output_items}) {
      Result<Json> parsed = parse_json_within(*items, left);
      if (!parsed.ok()) {
        return invalid_argument(
            "the conversation of previous_response_id has too many items: send those that matter",
            "previous_response_id");
      }
      all.push_back(std::move(*parsed));
    }
  }
  return all;
}

// The output as the next request reads it: arguments that the model did not end well are none.
std::string kept_output(Json output) {
  for (Json& item : output.as_array()) {
    const Json* arguments = item.find("arguments");
    if (!arguments) continue;
    const Result<Json> parsed = parse_json(arguments->as_string());
    if (!parsed.ok() || !parsed->is_object()) item.set("arguments", "{}");
  }
  return write_json(output);
}

Result<GenerationPlan> plan_response(RouteCall& call, const ReadyModel& model,
                                     const FieldContext& context, const Json& body) {
  ResponseStore& store = call.state.responses;
  const std::string owner = owner_of(call);
  HR_ASSIGN_OR_RETURN(const std::string previous, read_previous_id(body, context));
  HR_ASSIGN_OR_RETURN(std::vector<Json> earlier, earlier_items(store, owner, previous));
  HR_ASSIGN_OR_RETURN(ResponseRequest request,
                      parse_response_request(body, context, std::move(earlier)));
  ResponseFrame frame;
  frame.request = std::move(request.echo);
  const bool kept = request.store && store.keeps_some();
  frame.request.set("store", kept);
  if (kept) {
    frame.keep = [&store, owner, previous, input = write_json(request.input_items)](
                     const std::string& id, const Json& response, const Json& output) {
      store.put(owner, id, {write_json(response), input, kept_output(output), previous});
    };
  }
  return plan_chat(model, std::move(request.chat),
                   {.id_prefix = "resp_",
                    .make_format =
                        [&frame](AnswerHead head) {
                          return make_response_format(std::move(head), std::move(frame));
                        },
                    .max_tokens_otherwise = model.served.max_model_len,
                    .prompt_name = "input"});
}

// nullptr, and 404 is answered: the caller has no such response.
ResponseStore::Stored find_response(RouteCall& call) {
  auto stored = call.state.responses.find(owner_of(call), call.parameter);
  if (!stored) {
    call.exchange->respond(error_response(404, "there is no response of that id", "response_id"));
  }
  return stored;
}

void respond_text(RouteCall& call, std::string json) {
  HttpResponse response;
  response.body = std::move(json);
  call.exchange->respond(std::move(response));
}

// A page of a response's own input items; the newest first unless `order` is asc.
Result<Json> input_items_page(const Json& items, std::string_view query) {
  HR_ASSIGN_OR_RETURN(const int64_t limit,
                      query_integer(query, "limit", kItemsListed, 1, kItemsListedMax));
  const std::string order = query_value(query, "order").value_or("desc");
  if (order != "asc" && order != "desc") {
    return invalid_argument("order must be asc or desc", "order");
  }
  Json::Array all = items.as_array();
  if (order == "desc") std::reverse(all.begin(), all.end());
  auto from = all.begin();
  if (const auto after = query_value(query, "after")) {
    const auto is_it = [&](const Json& item) { return *item.find("id") == Json(*after); };
    from = std::find_if(all.begin(), all.end(), is_it);
    if (from == all.end()) return invalid_argument("after is the id of no item here", "after");
    ++from;
  }
  const auto count = std::min<int64_t>(limit, all.end() - from);
  Json data = Json(Json::Array(from, from + count));
  return list_json(std::move(data), all.end() - from > count);
}

}  // namespace

void handle_create_response(RouteCall& call) {
  generate(call, [&call](const ReadyModel& model, const FieldContext& context, const Json& body) {
    return plan_response(call, model, context, body);
  });
}

void handle_response(RouteCall& call) {
  if (query_value(call.request.query, "stream").value_or("false") != "false") {
    return call.exchange->respond(
        error_response(400, "stream is not supported: a response is shown as a whole", "stream"));
  }
  if (const auto stored = find_response(call)) respond_text(call, stored->response);
}

void handle_delete_response(RouteCall& call) {
  if (!find_response(call)) return;
  call.state.responses.erase(owner_of(call), call.parameter);
  Json body = Json::object().set("id", call.parameter).set("object", "response");
  respond_json(call, body.set("deleted", true));
}

// As OpenAI's, for responses that are made while their client waits.
void handle_cancel_response(RouteCall& call) {
  if (!find_response(call)) return;
  call.exchange->respond(
      error_response(400,
                     "only responses that were made with background can be cancelled, which this "
                     "server does not make: close the connection of the request instead",
                     "response_id"));
}

void handle_response_input_items(RouteCall& call) {
  const auto stored = find_response(call);
  if (!stored) return;
  const Result<Json> items = parse_json(stored->input_items, kStoredItems);
  const Result<Json> page = items.ok() ? input_items_page(*items, call.request.query) : items;
  if (!page.ok()) return call.exchange->respond(error_response(page.status()));
  respond_json(call, *page);
}

}  // namespace headrace
