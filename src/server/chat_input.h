// What a chat request hands to the chat template: messages, tools, documents and variables.
//
// Tools are always rendered; whether calls of them are read out of the answer is the output
// parser's (text/output/output_parser.h), by `tool_choice`.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "server/request_fields.h"

namespace headrace {

// Messages as templates expect them: text parts are joined into strings, arguments of tool calls
// that are JSON in a string (as clients must send them) become objects.
Result<Json> parse_messages(const Json& messages, const FieldContext& context);

// Between fields of a chat: what is to be continued does not get the head of an answer behind it.
Status check_continued(const Json& body);

// Each adds to `variables`, an object. An empty list adds nothing.
Status add_tools(const Json& tools, const FieldContext& context, Json& variables);
Status add_documents(const Json& documents, const FieldContext& context, Json& variables);
// Of chat_template_kwargs: kInvalidArgument unless it is as add_template_kwargs() takes it.
Status check_template_kwargs(const Json& kwargs, const RequestLimits& limits);
// chat_template_kwargs: an object that names none of the variables that fields set.
Status add_template_kwargs(const Json& kwargs, const FieldContext& context, Json& variables);

// The three as rows of a field table: into `template_variables`, null until something is added.
template <class Request, Status (*add)(const Json&, const FieldContext&, Json&)>
Status add_template_variable(const Json& value, const FieldContext& context, Request& request) {
  if (request.template_variables.is_null()) request.template_variables = Json::object();
  return add(value, context, request.template_variables);
}

}  // namespace headrace
