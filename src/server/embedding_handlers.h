// What handlers share whose answers are made of an encoder's vectors.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "server/embedding_session.h"
#include "server/router.h"

namespace headrace {

// What of the served encoder a request is held against.
EmbeddingSizes embedding_sizes(const ReadyModel& model);

// Without texts and `write`. The name that was asked for is the answer's; an error where that model
// is not served.
Result<EmbeddingPlan> plan_for(const RouteCall& call, std::string asked_name);
void put_texts(std::vector<EmbeddingText> texts, EmbeddingPlan& plan);
// Of single texts, without `write`. kInvalidArgument: the model does not do what is asked.
Result<EmbeddingPlan> plan_embeddings(const RouteCall& call, EmbeddingRequest request);

// Makes a plan and answers with it, within the caller's quota and the memory for vectors. On a text
// thread, but for the start of the answer, which belongs on the strand.
void answer_with_vectors(RouteCall& call,
                         const std::function<Result<EmbeddingPlan>(const RouteCall&)>& make_plan);

}  // namespace headrace
