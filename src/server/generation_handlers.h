// What every route to the model does, whatever its protocol.
#pragma once

#include <functional>

#include "server/generation_session.h"
#include "server/router.h"

namespace headrace {

// What a protocol makes of a body.
using MakePlan =
    std::function<Result<GenerationPlan>(const ReadyModel&, const FieldContext&, const Json&)>;

// How the answer begins. On a text thread.
using StartAnswer = std::function<void(RouteCall&, GenerationPlan)>;
void start_answer(RouteCall& call, GenerationPlan plan);  // on the call's exchange

// Takes the request's share of its key's quota and answers it, for good or bad. On a text thread.
void generate(RouteCall& call, const MakePlan& make_plan, const StartAnswer& start = start_answer);

// Makes of each prompt of a request with a suffix the tokens that ask the model to fill in between
// the two. kInvalidArgument: suffix, and why.
Status put_before_suffix(const ReadyModel& model, CompletionRequest& request);

}  // namespace headrace
