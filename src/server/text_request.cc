#include "server/text_request.h"

#include <limits>

#include "server/chat_input.h"
#include "server/field_schemas.h"

namespace headrace {
namespace {

using Context = FieldContext;

// Texts are bounded by the body alone, not as labels are.
template <std::optional<std::string> TokenizeRequest::*kMember>
Status read_text(std::string_view name, const Json& value, TokenizeRequest& request) {
  if (!value.is_string()) return field_error(name, "a string", value);
  request.*kMember = value.as_string();
  return ok_status();
}

#define HR_STORE(member, expression) \
  [](const Json& v, const Context&, auto& r) { return r.member = (expression), ok_status(); }

constexpr Field<TokenizeRequest> kTokenizeFields[] = {
    {"model", FieldType::kString, {}, HR_STORE(model, v.as_string())},
    {"prompt",
     FieldType::kAny,
     {},
     [](const Json& v, const Context&, TokenizeRequest& r) {
       return read_text<&TokenizeRequest::prompt>("prompt", v, r);
     },
     kTextSchema},
    {"content",
     FieldType::kAny,
     {},
     [](const Json& v, const Context&, TokenizeRequest& r) {
       return read_text<&TokenizeRequest::content>("content", v, r);
     },
     kTextSchema},
    {"messages",
     FieldType::kAny,
     {},
     [](const Json& v, const Context& c, TokenizeRequest& r) -> Status {
       HR_ASSIGN_OR_RETURN(r.messages, parse_messages(v, c));
       return ok_status();
     },
     kMessagesSchema},
    {"add_special_tokens", FieldType::kBool, {}, HR_STORE(add_special, v.as_bool())},
    {"add_special", FieldType::kBool, {}, HR_STORE(add_special, v.as_bool())},
    {"parse_special", FieldType::kBool, {}, HR_STORE(parse_special, v.as_bool())},
    {"add_generation_prompt", FieldType::kBool, {}, HR_STORE(add_generation_prompt, v.as_bool())},
    {"continue_final_message", FieldType::kBool, {}, HR_STORE(continue_final_message, v.as_bool())},
    {"tools", FieldType::kAny, {}, add_template_variable<TokenizeRequest, add_tools>, kToolsSchema},
    {"documents",
     FieldType::kAny,
     {},
     add_template_variable<TokenizeRequest, add_documents>,
     kDocumentsSchema},
    {"chat_template_kwargs",
     FieldType::kAny,
     {},
     add_template_variable<TokenizeRequest, add_template_kwargs>,
     kTemplateKwargsSchema},
    {"return_token_strs", FieldType::kBool, {}, HR_STORE(return_token_strs, v.as_bool())},
    {"with_pieces", FieldType::kBool, {}, HR_STORE(with_pieces, v.as_bool())},
};

constexpr Field<DetokenizeRequest> kDetokenizeFields[] = {
    {"model", FieldType::kString, {}, HR_STORE(model, v.as_string())},
    {"tokens",
     FieldType::kAny,
     {},
     [](const Json& v, const Context& c, DetokenizeRequest& r) -> Status {
       r.has_tokens = true;
       HR_ASSIGN_OR_RETURN(r.tokens,
                           read_token_ids("tokens", v, c, std::numeric_limits<size_t>::max()));
       return ok_status();
     },
     kTokenIdsSchema},
};
#undef HR_STORE

}  // namespace

std::span<const Field<TokenizeRequest>> tokenize_fields() { return kTokenizeFields; }
std::span<const Field<DetokenizeRequest>> detokenize_fields() { return kDetokenizeFields; }

Result<TokenizeRequest> parse_tokenize_request(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  TokenizeRequest request;
  HR_RETURN_IF_ERROR(read_fields<TokenizeRequest>(kTokenizeFields, body, context, request));
  const int forms =
      request.prompt.has_value() + request.messages.has_value() + request.content.has_value();
  if (forms != 1) {
    return invalid_argument("exactly one of prompt, messages and content must be given", "prompt");
  }
  HR_RETURN_IF_ERROR(check_continued(body));
  return request;
}

Result<DetokenizeRequest> parse_detokenize_request(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  DetokenizeRequest request;
  HR_RETURN_IF_ERROR(read_fields<DetokenizeRequest>(kDetokenizeFields, body, context, request));
  if (!request.has_tokens) return invalid_argument("tokens is missing", "tokens");
  return request;
}

}  // namespace headrace
