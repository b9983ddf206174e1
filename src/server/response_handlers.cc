// /v1/responses, as OpenAI's Responses API has it.
#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/background_response.h"
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

using Background = std::shared_ptr<BackgroundResponse>;

// What becomes of a response in the background: it is kept when it is complete, and anew with its
// events when it has ended, unless it was deleted.
Background make_background(ServerState& state, const std::string& owner, bool streams) {
  return std::make_shared<BackgroundResponse>(
      state.post_box, streams ? state.limits.stored_response_bytes_max : 0,
      BackgroundResponse::Keeper{
          // It is found all the time, and a deletion in between deletes what was put.
          .complete =
              [&state, owner](const std::string& id, StoredResponse kept) {
                state.responses.put(owner, id, std::move(kept));
                if (!state.background_responses.find(owner, id)) state.responses.erase(owner, id);
              },
          .end =
              [&state, owner](const std::string& id, std::optional<StoredResponse> kept) {
                if (kept) state.responses.put(owner, id, *std::move(kept));
                if (!state.background_responses.erase(owner, id)) state.responses.erase(owner, id);
              }});
}

Status check_background(const ResponseRequest& request, bool job, bool store_keeps) {
  if (!request.background) return ok_status();
  if (job) {
    return invalid_argument("background is not supported in batches, which nobody waits for anyway",
                            "background");
  }
  if (!request.store) {
    return invalid_argument("background needs store: what nobody waits for is looked at later",
                            "background");
  }
  if (store_keeps) return ok_status();
  return invalid_argument(
      "background is not supported: this server stores no responses (--max-stored-response-bytes)",
      "background");
}

// What its format tells a response in the background.
void put_in_background(const Background& background, const std::string& previous,
                       std::string input_items, ResponseFrame& frame) {
  frame.announce = [background, previous, input = std::move(input_items)](const std::string& id,
                                                                          const Json& queued) {
    background->announce(id, queued, input, previous);
  };
  frame.keep_failed = true;
  frame.keep = [weak = std::weak_ptr(background)](const std::string&, const Json& response,
                                                  const Json& output) {
    if (const Background own = weak.lock()) own->complete(response, kept_output(output));
  };
}

// `background`: set where the request asks for a response that is made in it.
Result<GenerationPlan> plan_response(RouteCall& call, const ReadyModel& model,
                                     const FieldContext& context, const Json& body,
                                     Background* background) {
  ResponseStore& store = call.state.responses;
  const std::string owner = owner_of(call);
  HR_ASSIGN_OR_RETURN(const std::string previous, read_previous_id(body, context));
  HR_ASSIGN_OR_RETURN(std::vector<Json> earlier, earlier_items(store, owner, previous));
  HR_ASSIGN_OR_RETURN(ResponseRequest request,
                      parse_response_request(body, context, std::move(earlier)));
  ResponseFrame frame;
  frame.request = std::move(request.echo);
  const bool kept = request.store && store.keeps_some();
  HR_RETURN_IF_ERROR(check_background(request, call.caller.job, kept));
  frame.request.set("store", kept);
  if (request.background) {
    *background = make_background(call.state, owner, request.chat.settings.stream);
    put_in_background(*background, previous, write_json(request.input_items), frame);
  } else if (kept) {
    frame.keep = [&store, owner, previous, input = write_json(request.input_items)](
                     const std::string& id, const Json& response, const Json& output) {
      store.put(owner, id, {write_json(response), input, kept_output(output), previous});
    };
  }
  const int32_t otherwise = length_otherwise(model, request.chat.settings);
  Result<GenerationPlan> plan =
      plan_chat(model, std::move(request.chat),
                {.id_prefix = "resp_",
                 .make_format =
                     [&frame](AnswerHead head) {
                       return make_response_format(std::move(head), std::move(frame));
                     },
                 .max_tokens_otherwise = otherwise,
                 .prompt_name = "input",
                 .request_type = "responses"});
  if (plan.ok()) plan->unattended = request.background;
  return plan;
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

Background find_running(const RouteCall& call) {
  return call.state.background_responses.find(owner_of(call), call.parameter);
}

// The events behind ?starting_after=N, those that are still to come included.
void follow_events(RouteCall& call, const std::shared_ptr<EventLog>& events) {
  const std::string_view query = call.request.query;
  const auto after = query_integer(query, "starting_after", -1, 0, int64_t{1} << 40);
  if (!after.ok()) return call.exchange->respond(error_response(after.status()));
  if (query_value(query, "stream") != "true") {
    return call.exchange->respond(error_response(400, "stream must be true or false", "stream"));
  }
  if (!events) {
    return call.exchange->respond(error_response(
        400, "stream needs a response that was made with background and stream", "stream"));
  }
  EventLog::follow(events, call.exchange, static_cast<size_t>(*after + 1),
                   call.state.limits.ping_seconds);
}

// The client is told of it once the engine has taken the request, or has not.
void start_in_background(RouteCall& call, const Background& background, GenerationPlan plan) {
  call.state.background_responses.put(owner_of(call), background->id(), background);
  HttpResponse queued;
  queued.headers = plan.answer_headers();
  queued.body = background->shown();
  plan.settings.stream = true;  // within: its format tells how it goes on
  background->post([&state = call.state, background, exchange = call.exchange, queued,
                    ready = std::make_shared<GenerationPlan>(std::move(plan))] {
    try {
      GenerationSession::start(state, std::move(*ready), background);
    } catch (const std::exception&) {
      exchange->respond(error_response(500, "internal error"));
      throw;
    }
    if (auto refusal = background->take_refusal()) return exchange->respond(std::move(*refusal));
    if (background->events()) {
      return EventLog::follow(background->events(), exchange, 0, state.limits.ping_seconds);
    }
    exchange->respond(queued);
  });
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
  Background background;
  generate(
      call,
      [&](const ReadyModel& model, const FieldContext& context, const Json& body) {
        return plan_response(call, model, context, body, &background);
      },
      [&background](RouteCall& planned, GenerationPlan plan) {
        if (background) return start_in_background(planned, background, std::move(plan));
        start_answer(planned, std::move(plan));
      });
}

// What the same request would have as its prompt.
void handle_count_response_tokens(RouteCall& call) {
  const auto count = [&]() -> Result<int64_t> {
    const FieldContext context = call.state.context_of(*call.model);
    HR_ASSIGN_OR_RETURN(const std::string previous, read_previous_id(call.body, context));
    HR_ASSIGN_OR_RETURN(std::vector<Json> earlier,
                        earlier_items(call.state.responses, owner_of(call), previous));
    HR_ASSIGN_OR_RETURN(ResponseRequest request,
                        parse_response_request(call.body, context, std::move(earlier)));
    return count_chat_tokens(*call.model, std::move(request.chat), "input");
  }();
  if (!count.ok()) return call.exchange->respond(bad_request_response(count.status()));
  Json json = Json::object().set("object", "response.input_tokens");
  respond_json(call, json.set("input_tokens", *count));
}

void handle_response(RouteCall& call) {
  const Background running = find_running(call);
  const auto stored = running ? nullptr : find_response(call);
  if (!running && !stored) return;
  const std::string streams = query_value(call.request.query, "stream").value_or("false");
  if (streams == "false") {
    return respond_text(call, running ? running->shown() : stored->response);
  }
  follow_events(call, running ? running->events() : stored->events);
}

void handle_delete_response(RouteCall& call) {
  const Background running = find_running(call);
  if (!running && !find_response(call)) return;
  call.state.background_responses.erase(owner_of(call), call.parameter);
  call.state.responses.erase(owner_of(call), call.parameter);
  if (running) running->cancel([] {});
  Json body = Json::object().set("id", call.parameter).set("object", "response");
  respond_json(call, body.set("deleted", true));
}

// One that has ended stays as it is, and is shown again; as OpenAI's, those that were made while
// their client waited are refused.
void handle_cancel_response(RouteCall& call) {
  if (const Background running = find_running(call)) {
    return running->cancel([running, exchange = call.exchange] {
      HttpResponse response;
      response.body = running->shown();
      exchange->respond(std::move(response));
    });
  }
  const auto stored = find_response(call);
  if (!stored) return;
  const Result<Json> response = parse_json(stored->response, kStoredItems);
  const Json* background = response.ok() ? response->find("background") : nullptr;
  if (background && *background == Json(true)) return respond_text(call, stored->response);
  call.exchange->respond(
      error_response(400,
                     "only responses that were made with background can be cancelled: close the "
                     "connection of the request instead",
                     "response_id"));
}

void handle_response_input_items(RouteCall& call) {
  const Background running = find_running(call);
  const auto stored = running ? running->kept() : find_response(call);
  if (!stored) return;
  const Result<Json> items = parse_json(stored->input_items, kStoredItems);
  const Result<Json> page = items.ok() ? input_items_page(*items, call.request.query) : items;
  if (!page.ok()) return call.exchange->respond(error_response(page.status()));
  respond_json(call, *page);
}

}  // namespace headrace
