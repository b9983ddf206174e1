// What every route to the model does, whatever its protocol.
#pragma once

#include <functional>

#include "server/generation_session.h"
#include "server/router.h"

namespace headrace {

// What a protocol makes of a body.
using MakePlan =
    std::function<Result<GenerationPlan>(const ReadyModel&, const FieldContext&, const Json&)>;

// Takes the request's share of its key's quota and answers it, for good or bad. On a text thread.
void generate(RouteCall& call, const MakePlan& make_plan);

}  // namespace headrace
