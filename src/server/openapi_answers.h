// The forms of answers, for the OpenAPI document: what a client may rely on of a 200.
#pragma once

#include "base/json.h"
#include "server/router.h"

namespace headrace {

// The `content` of a route's 200 by media type: a JSON schema, and "text/event-stream" or its kin
// where an answer may be a stream. Null: its form is not told.
Json answer_content(const Route& route);

// What those refer to by name, and Error: of every family, OpenAI's, Anthropic's, Ollama's, TGI's.
Json answer_components();

}  // namespace headrace
