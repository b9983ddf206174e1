// The forms that requests ask of answers (text/grammar/answer_grammar.h), under the names that
// servers have given them.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "server/generation_request.h"
#include "server/request_fields.h"

namespace headrace {

// OpenAI's response_format, vLLM's structured_outputs and guided_*, llama.cpp's grammar and
// json_schema, SGLang's regex and ebnf.
std::span<const Field<GenerationSettings>> form_fields();
// The same of SGLang's sampling_params.
std::span<const std::string_view> sglang_form_names();

// Readers of what other protocols call them: `name` is the field. kInvalidArgument also for a
// second form in one request, and where the engine keeps to none.
Status read_any_json_form(std::string_view name, const FieldContext& context,
                          GenerationSettings& settings);
// `schema`: an object, true, or a string that holds one.
Status read_schema_form(std::string_view name, const Json& schema, const FieldContext& context,
                        GenerationSettings& settings);
Status read_regex_form(std::string_view name, const Json& pattern, const FieldContext& context,
                       GenerationSettings& settings);
// {"type": "text" | "json_object" | "json_schema", ...}, where the schema stands in `schema` or in
// json_schema.schema.
Status read_response_format(std::string_view name, const Json& format, const FieldContext& context,
                            GenerationSettings& settings);

}  // namespace headrace
