// Routes that answer with embeddings: OpenAI's, llama.cpp's and Ollama's.
#include "server/embedding_handlers.h"

#include <memory>

#include <fmt/format.h>

#include "server/embedding_request.h"
#include "server/error_response.h"
#include "server/handlers.h"

namespace headrace {
namespace {

using MakeRequest = std::function<Result<EmbeddingRequest>(const Json&, const FieldContext&)>;

Status refuse_field(std::string_view field, std::string_view why) {
  return invalid_argument(fmt::format("{} is not supported: {}", field, why), std::string(field));
}

// What /pooling asks for is what the model does.
Status check_task(const ClassifierHead& head, const EmbeddingRequest& request) {
  if (head && request.task == "embed") {
    return refuse_field("task", "the model is a classifier: \"classify\" is what it does");
  }
  if (head && request.dimensions > 0) {
    return refuse_field("dimensions", "the model is a classifier, and tells all its classes");
  }
  if (!head && request.task == "classify") {
    return refuse_field("task", "the model has no classes: \"embed\" is what it does");
  }
  if (!head && !request.use_activation) {
    return refuse_field("use_activation", "vectors are normalised as the model's files say");
  }
  return ok_status();
}

size_t vector_bytes(const RouteCall& call, size_t texts) {
  const EmbeddingRunner& runner = call.model->served.embedder->runner();
  return texts * static_cast<size_t>(runner.dimensions()) * sizeof(float);
}

HttpResponse too_many_vectors(const RouteCall& call) {
  return too_many_requests(
      "vectors of other requests take all the memory that there is for them: send it again later, "
      "or fewer texts at a time",
      call.model->served.embedder->retry_after_seconds());
}

void embed(RouteCall& call, const MakeRequest& make_request,
           const decltype(EmbeddingPlan::write)& write) {
  answer_with_vectors(call, [&](const RouteCall& of) -> Result<EmbeddingPlan> {
    HR_ASSIGN_OR_RETURN(EmbeddingRequest request,
                        make_request(of.body, of.state.context_of(*of.model)));
    HR_ASSIGN_OR_RETURN(EmbeddingPlan plan, plan_embeddings(of, std::move(request)));
    plan.write = write;
    return plan;
  });
}

// Ollama answers no text with no vector, once the model is there.
bool asks_for_nothing(const RouteCall& call, OllamaEmbedRoute route) {
  const Json* text = call.body.find(route == OllamaEmbedRoute::kEmbed ? "input" : "prompt");
  return text &&
         (*text == Json("") || (route == OllamaEmbedRoute::kEmbed && *text == Json::array()));
}

void embed_for_ollama(RouteCall& call, OllamaEmbedRoute route) {
  follow_keep_alive(call);
  if (asks_for_nothing(call, route)) {
    const Json* name = call.body.find("model");
    const auto plan = plan_for(call, name && name->is_string() ? name->as_string() : "");
    if (!plan.ok()) return call.exchange->respond(bad_request_response(plan.status()));
    HttpResponse response;
    response.body = ollama_embeddings(route, {}, plan->answer);
    return call.exchange->respond(std::move(response));
  }
  embed(
      call,
      [route](const Json& body, const FieldContext& context) {
        return parse_ollama_embed_request(route, body, context);
      },
      [route](const EmbeddingRows& rows, const EmbeddingAnswer& answer) {
        return ollama_embeddings(route, rows, answer);
      });
}

}  // namespace

EmbeddingSizes embedding_sizes(const ReadyModel& model) {
  return {.dimensions = model.served.embedder->runner().dimensions(),
          .length_max = model.served.max_model_len};
}

Result<EmbeddingPlan> plan_for(const RouteCall& call, std::string asked_name) {
  const ReadyModel& model = *call.model;
  const std::string name = served_name(model, std::move(asked_name));
  HR_RETURN_IF_ERROR(check_model_name(model, name));
  EmbeddingPlan plan;
  plan.model = call.model;
  plan.dimensions = model.served.embedder->runner().dimensions();
  plan.answer.model = !call.shown_model.empty() ? call.shown_model
                      : name.empty()            ? model.served.names.front()
                                                : name;
  plan.answer.load_seconds = call.load_seconds;
  return plan;
}

void put_texts(std::vector<EmbeddingText> texts, EmbeddingPlan& plan) {
  plan.texts = std::move(texts);
  for (const EmbeddingText& text : plan.texts) {
    plan.answer.prompt_tokens += static_cast<int64_t>(text.ids.size());
  }
}

Result<EmbeddingPlan> plan_embeddings(const RouteCall& call, EmbeddingRequest request) {
  const ReadyModel& model = *call.model;
  HR_RETURN_IF_ERROR(check_task(model.served.embedder->runner().head(), request));
  HR_ASSIGN_OR_RETURN(EmbeddingPlan plan, plan_for(call, request.model));
  if (request.dimensions > 0) plan.dimensions = request.dimensions;
  plan.answer.encoding = request.encoding;
  HR_ASSIGN_OR_RETURN(auto ids, embedding_ids(std::move(request), model.served.tokenizer,
                                              embedding_sizes(model), call.state.limits));
  put_texts(single_texts(std::move(ids)), plan);
  return plan;
}

void answer_with_vectors(RouteCall& call,
                         const std::function<Result<EmbeddingPlan>(const RouteCall&)>& make_plan) {
  KeyQuota* const quota = call.caller.job ? nullptr : call.state.quotas.of(call.caller.key);
  KeyQuota::Admission admission;
  if (quota) admission = quota->admit();
  if (admission.refusal) return call.exchange->respond(quota_response(*admission.refusal, *quota));
  const auto refuse = [&](HttpResponse response) {
    if (quota) {
      for (HttpHeader& header : quota->headers()) response.headers.push_back(std::move(header));
    }
    call.exchange->respond(std::move(response));
  };
  Result<EmbeddingPlan> plan = make_plan(call);
  if (!plan.ok()) {
    admission.lease.reset();  // before the client can know, who may send its next request
    return refuse(bad_request_response(plan.status()));
  }
  plan->vectors = call.state.embedding_budget.take(vector_bytes(call, plan->texts.size()));
  if (!plan->vectors) {
    admission.lease.reset();
    return refuse(too_many_vectors(call));
  }
  if (quota) {
    const auto refusal = quota->take_tokens(*admission.lease, plan->answer.prompt_tokens, 0);
    if (refusal) {
      admission.lease.reset();
      return call.exchange->respond(quota_response(*refusal, *quota));
    }
    plan->lease = std::move(admission.lease);
    plan->headers = quota->headers();
  }
  call.exchange->post([&state = call.state, exchange = call.exchange,
                       ready = std::make_shared<EmbeddingPlan>(std::move(*plan))] {
    EmbeddingSession::start(state, std::move(*ready), exchange);
  });
}

void handle_embeddings(RouteCall& call) { embed(call, parse_embedding_request, openai_embeddings); }

void handle_llama_embedding(RouteCall& call) {
  embed(call, parse_llama_embedding_request, llama_embeddings);
}

void handle_ollama_embed(RouteCall& call) { embed_for_ollama(call, OllamaEmbedRoute::kEmbed); }

void handle_ollama_embeddings(RouteCall& call) {
  embed_for_ollama(call, OllamaEmbedRoute::kEmbeddings);
}

}  // namespace headrace
