// Routes that answer with embeddings: OpenAI's and Ollama's.
#include <memory>

#include "server/embedding_request.h"
#include "server/embedding_session.h"
#include "server/error_response.h"
#include "server/handlers.h"

namespace headrace {
namespace {

using MakeRequest = std::function<Result<EmbeddingRequest>(const Json&, const FieldContext&)>;

// Ollama's names end in a tag; a model that is served without one is its latest.
std::string without_latest(const ReadyModel& model, std::string name) {
  constexpr std::string_view kLatest = ":latest";
  if (model.serves(name) || !name.ends_with(kLatest)) return name;
  name.resize(name.size() - kLatest.size());
  return name;
}

Result<EmbeddingPlan> plan_embeddings(const RouteCall& call, const MakeRequest& make_request) {
  const ReadyModel& model = *call.model;
  const EmbeddingRunner& runner = model.served.embedder->runner();
  HR_ASSIGN_OR_RETURN(EmbeddingRequest request,
                      make_request(call.body, call.state.context_of(model)));
  const std::string name = without_latest(model, request.model);
  HR_RETURN_IF_ERROR(check_model_name(model, name));
  EmbeddingPlan plan;
  plan.model = call.model;
  plan.dimensions = request.dimensions > 0 ? request.dimensions : runner.dimensions();
  plan.answer.model = name.empty() ? model.served.names.front() : name;
  plan.answer.encoding = request.encoding;
  HR_ASSIGN_OR_RETURN(plan.texts, embedding_ids(std::move(request), model.served.tokenizer,
                                                {.dimensions = runner.dimensions(),
                                                 .length_max = model.served.max_model_len},
                                                call.state.limits));
  for (const auto& text : plan.texts) {
    plan.answer.prompt_tokens += static_cast<int64_t>(text.size());
  }
  return plan;
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

// On a text thread, but for the start of the answer, which belongs on the strand.
void embed(RouteCall& call, const MakeRequest& make_request, decltype(EmbeddingPlan::write) write) {
  KeyQuota* const quota = call.caller.job ? nullptr : call.state.quotas.of(call.caller.key);
  KeyQuota::Admission admission;
  if (quota) admission = quota->admit();
  if (admission.refusal) return call.exchange->respond(quota_response(*admission.refusal, *quota));
  Result<EmbeddingPlan> plan = plan_embeddings(call, make_request);
  if (!plan.ok()) {
    admission.lease.reset();  // before the client can know, who may send its next request
    return call.exchange->respond(bad_request_response(plan.status()));
  }
  plan->write = std::move(write);
  plan->vectors = call.state.embedding_budget.take(vector_bytes(call, plan->texts.size()));
  if (!plan->vectors) {
    admission.lease.reset();
    return call.exchange->respond(too_many_vectors(call));
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

void embed_for_ollama(RouteCall& call, OllamaEmbedRoute route) {
  follow_keep_alive(call);
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

void handle_embeddings(RouteCall& call) { embed(call, parse_embedding_request, openai_embeddings); }

void handle_ollama_embed(RouteCall& call) { embed_for_ollama(call, OllamaEmbedRoute::kEmbed); }

void handle_ollama_embeddings(RouteCall& call) {
  embed_for_ollama(call, OllamaEmbedRoute::kEmbeddings);
}

}  // namespace headrace
