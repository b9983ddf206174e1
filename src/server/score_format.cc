#include "server/score_format.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/json.h"
#include "server/random_id.h"
#include "server/server_state.h"

namespace headrace {
namespace {

Json usage_of(const EmbeddingAnswer& answer) {
  return Json::object()
      .set("prompt_tokens", answer.prompt_tokens)
      .set("total_tokens", answer.prompt_tokens);
}

Json list_of(std::string_view id_prefix, Json data, const EmbeddingAnswer& answer) {
  Json json = Json::object().set("id", std::string(id_prefix) + random_hex_id());
  json.set("object", "list").set("created", unix_seconds()).set("model", answer.model);
  return json.set("data", std::move(data)).set("usage", usage_of(answer));
}

// Places of the documents to tell, the best first.
std::vector<size_t> ranked(const ScoreRequest& request, const std::vector<double>& scores) {
  std::vector<size_t> places(scores.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::ranges::stable_sort(places, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  const auto most = static_cast<size_t>(request.top_n);
  if (most > 0 && most < places.size()) places.resize(most);
  return places;
}

}  // namespace

std::vector<double> scores_of(const ClassifierHead& head, const ScoreRequest& request,
                              const EmbeddingRows& rows) {
  const auto row = [&](size_t i) { return rows.values.subspan(i * rows.width, rows.width); };
  const size_t firsts = request.first.size();
  std::vector<double> scores;
  for (size_t i = 0; i < request.second.size(); ++i) {
    if (head) {
      float score = row(i).front();
      if (request.use_activation) activate(head.score, std::span(&score, 1));
      scores.push_back(score);
    } else {
      scores.push_back(cosine(row(firsts == 1 ? 0 : i), row(firsts + i)));
    }
  }
  return scores;
}

std::string score_answer(const std::vector<double>& scores, const EmbeddingAnswer& answer) {
  Json data = Json::array();
  for (size_t i = 0; i < scores.size(); ++i) {
    Json item = Json::object().set("index", static_cast<int64_t>(i));
    data.push(item.set("object", "score").set("score", scores[i]));
  }
  return write_json(list_of("score-", std::move(data), answer));
}

std::string rerank_answer(const ScoreRequest& request, const std::vector<double>& scores,
                          const EmbeddingAnswer& answer) {
  Json results = Json::array();
  for (const size_t i : ranked(request, scores)) {
    Json item = Json::object().set("index", static_cast<int64_t>(i));
    item.set("relevance_score", scores[i]);
    if (request.return_documents) {
      item.set("document", Json::object().set("text", request.second[i]));
    }
    results.push(std::move(item));
  }
  Json json = Json::object().set("id", "rerank-" + random_hex_id()).set("object", "list");
  json.set("model", answer.model).set("results", std::move(results));
  return write_json(json.set("usage", usage_of(answer)));
}

std::string tei_rerank_answer(const ScoreRequest& request, const std::vector<double>& scores) {
  Json results = Json::array();
  for (const size_t i : ranked(request, scores)) {
    Json item = Json::object().set("index", static_cast<int64_t>(i)).set("score", scores[i]);
    if (request.return_documents) item.set("text", request.second[i]);
    results.push(std::move(item));
  }
  return write_json(results);
}

std::vector<float> class_values(const ClassifierHead& head, bool use_activation,
                                const EmbeddingRows& rows) {
  std::vector<float> values(rows.values.begin(), rows.values.end());
  for (size_t at = 0; use_activation && at < values.size(); at += rows.width) {
    activate(head.classes, std::span(values).subspan(at, rows.width));
  }
  return values;
}

std::string class_answer(const ClassifierHead& head, bool use_activation, const EmbeddingRows& rows,
                         const EmbeddingAnswer& answer) {
  const std::vector<float> values = class_values(head, use_activation, rows);
  Json data = Json::array();
  for (size_t at = 0; at < values.size(); at += rows.width) {
    const std::span<const float> row = std::span(values).subspan(at, rows.width);
    Json probs = Json::array();
    for (const float value : row) probs.push(double{value});
    const auto best = static_cast<size_t>(std::ranges::max_element(row) - row.begin());
    Json item = Json::object().set("index", static_cast<int64_t>(at / rows.width));
    item.set("label", head.labels[best]).set("probs", std::move(probs));
    data.push(item.set("num_classes", static_cast<int64_t>(rows.width)));
  }
  return write_json(list_of("classify-", std::move(data), answer));
}

}  // namespace headrace
