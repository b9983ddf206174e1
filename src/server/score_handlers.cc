// Routes that compare and classify texts: vLLM's, Jina's, Cohere's and text-embeddings-inference's.
// Of a cross-encoder a pair is read together; of an embedder vectors are compared.
#include "server/score_format.h"

#include <memory>
#include <utility>

#include "server/embedding_handlers.h"
#include "server/handlers.h"

namespace headrace {
namespace {

using ParseScores = Result<ScoreRequest> (*)(const Json&, const FieldContext&);
using WriteScores = std::function<std::string(const ScoreRequest&, const std::vector<double>&,
                                              const EmbeddingAnswer&)>;

Result<std::vector<EmbeddingText>> scored_texts(const RouteCall& call,
                                                const ScoreRequest& request) {
  const ReadyModel& model = *call.model;
  const Tokenizer* const tokenizer = model.served.tokenizer;
  const EmbeddingSizes sizes = embedding_sizes(model);
  if (!model.served.embedder->runner().head()) {
    return compared_texts(request, tokenizer, sizes, call.state.limits);
  }
  if (!model.served.joins_pairs) return pair_texts(request, tokenizer, sizes, call.state.limits);
  return prompt_texts(request, model.chat.get(), tokenizer, sizes, call.state.limits);
}

Result<EmbeddingPlan> plan_scores(const RouteCall& call, ParseScores parse,
                                  const WriteScores& write) {
  const ReadyModel& model = *call.model;
  const ClassifierHead& head = model.served.embedder->runner().head();
  HR_ASSIGN_OR_RETURN(ScoreRequest request, parse(call.body, call.state.context_of(model)));
  HR_ASSIGN_OR_RETURN(EmbeddingPlan plan, plan_for(call, request.model));
  HR_ASSIGN_OR_RETURN(auto texts, scored_texts(call, request));
  put_texts(std::move(texts), plan);
  plan.write = [&head, write, asked = std::make_shared<ScoreRequest>(std::move(request))](
                   const EmbeddingRows& rows, const EmbeddingAnswer& answer) {
    return write(*asked, scores_of(head, *asked, rows), answer);
  };
  return plan;
}

void answer_scores(RouteCall& call, ParseScores parse, const WriteScores& write) {
  answer_with_vectors(call, [&](const RouteCall& of) { return plan_scores(of, parse, write); });
}

}  // namespace

void handle_score(RouteCall& call) {
  answer_scores(call, parse_score_request,
                [](const ScoreRequest&, const std::vector<double>& scores,
                   const EmbeddingAnswer& answer) { return score_answer(scores, answer); });
}

// text-embeddings-inference's has `texts`, and an answer of its own.
void handle_rerank(RouteCall& call) {
  if (!call.body.find("texts")) return answer_scores(call, parse_rerank_request, rerank_answer);
  answer_scores(call, parse_tei_rerank_request,
                [](const ScoreRequest& request, const std::vector<double>& scores,
                   const EmbeddingAnswer&) { return tei_rerank_answer(request, scores); });
}

void handle_classify(RouteCall& call) {
  answer_with_vectors(call, [](const RouteCall& of) -> Result<EmbeddingPlan> {
    const ClassifierHead& head = of.model->served.embedder->runner().head();
    HR_ASSIGN_OR_RETURN(EmbeddingRequest request,
                        parse_classify_request(of.body, of.state.context_of(*of.model)));
    const bool use_activation = request.use_activation;
    HR_ASSIGN_OR_RETURN(EmbeddingPlan plan, plan_embeddings(of, std::move(request)));
    plan.write = [&head, use_activation](const EmbeddingRows& rows, const EmbeddingAnswer& answer) {
      return class_answer(head, use_activation, rows, answer);
    };
    return plan;
  });
}

void handle_pooling(RouteCall& call) {
  answer_with_vectors(call, [](const RouteCall& of) -> Result<EmbeddingPlan> {
    const ClassifierHead& head = of.model->served.embedder->runner().head();
    HR_ASSIGN_OR_RETURN(EmbeddingRequest request,
                        parse_pooling_request(of.body, of.state.context_of(*of.model)));
    const bool use_activation = request.use_activation;
    HR_ASSIGN_OR_RETURN(EmbeddingPlan plan, plan_embeddings(of, std::move(request)));
    plan.write = pooling_answer;
    if (head) {
      plan.write = [&head, use_activation](const EmbeddingRows& rows,
                                           const EmbeddingAnswer& answer) {
        const std::vector<float> values = class_values(head, use_activation, rows);
        return pooling_answer({values, rows.width, rows.dimensions}, answer);
      };
    }
    return plan;
  });
}

}  // namespace headrace
