// Answers that compare or classify texts, from the rows that the engine gave.
#pragma once

#include <string>
#include <vector>

#include "base/classifier_head.h"
#include "server/embedding_format.h"
#include "server/score_request.h"

namespace headrace {

// One a pair: of a cross-encoder's rows, or by the cosine of an embedder's (compared_texts()).
std::vector<double> scores_of(const ClassifierHead& head, const ScoreRequest& request,
                              const EmbeddingRows& rows);

std::string score_answer(const std::vector<double>& scores, const EmbeddingAnswer& answer);
// The best first, of equal ones the first sent.
std::string rerank_answer(const ScoreRequest& request, const std::vector<double>& scores,
                          const EmbeddingAnswer& answer);
std::string tei_rerank_answer(const ScoreRequest& request, const std::vector<double>& scores);
// `rows` are logits where not `use_activation`, and are told as such.
std::string class_answer(const ClassifierHead& head, bool use_activation, const EmbeddingRows& rows,
                         const EmbeddingAnswer& answer);

// The rows' values as the head's classes have them: probabilities.
std::vector<float> class_values(const ClassifierHead& head, bool use_activation,
                                const EmbeddingRows& rows);

}  // namespace headrace
