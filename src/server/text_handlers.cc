#include <fmt/core.h>

#include "server/answer_format.h"
#include "server/error_response.h"
#include "server/handlers.h"
#include "server/text_request.h"
#include "text/utf8.h"

namespace headrace {
namespace {

// Whether a text is the spelling of one control token, as /tokenizer_info names them. Evaluation
// harnesses ask for the ids of those so; as a text of its own it is nothing else.
bool spells_control_token(const Tokenizer& tokenizer, const std::string& text) {
  constexpr size_t kSpellingBytesMax = 64;
  if (text.empty() || text.size() > kSpellingBytesMax) return false;
  const auto ids = tokenizer.encode(text, {.add_special = false, .parse_special = true});
  return ids.ok() && ids->size() == 1 && tokenizer.is_control(ids->front());
}

ChatPromptOptions prompt_options(const TokenizeRequest& request) {
  return {.add_generation_prompt = request.add_generation_prompt,
          .continue_final_message = request.continue_final_message,
          .add_special = request.add_special.value_or(false)};
}

// What a chat's template reads beside its messages.
Json variables_of(const ReadyModel& model, const TokenizeRequest& request) {
  Json variables = request.template_variables;
  model.put_template_defaults(variables);
  return variables;
}

Result<std::vector<TokenId>> tokenize(const ReadyModel& model, const TokenizeRequest& request) {
  if (request.messages) {
    if (!model.chat) return invalid_argument("this model has no chat template", "messages");
    return model.chat->encode(*request.messages, variables_of(model, request),
                              prompt_options(request));
  }
  // BOS by vLLM's default for `prompt` and llama.cpp's for `content`; within a text the spelling of
  // a control token becomes one only when asked (both engines always do it).
  const Tokenizer& tokenizer = *model.served.tokenizer;
  const std::string& text = request.prompt ? *request.prompt : *request.content;
  EncodeOptions options;
  options.add_special = request.add_special.value_or(request.prompt.has_value());
  options.parse_special =
      request.parse_special ? *request.parse_special : spells_control_token(tokenizer, text);
  return tokenizer.encode(text, options);
}

// Nobody waits for a thread that reads a text of any length. (A chat's template takes longer.)
Status check_length(const TokenizeRequest& request, const FieldContext& context) {
  const char* field = request.prompt ? "prompt" : request.content ? "content" : "messages";
  const size_t bytes = request.prompt    ? request.prompt->size()
                       : request.content ? request.content->size()
                                         : write_json(*request.messages).size();
  const size_t most = context.limits.tokenize_bytes_max;
  if (bytes <= most) return ok_status();
  return invalid_argument(fmt::format("{} has {} bytes, more than the {} that are tokenized at a "
                                      "time (--max-tokenize-bytes): send it in parts",
                                      field, bytes, most),
                          field);
}

// A piece is a string, or an array of bytes where those are no whole characters.
Json piece_json(const std::string& bytes) {
  if (valid_utf8_prefix(bytes) == bytes.size()) return Json(bytes);
  Json::Array items;
  for (char c : bytes) items.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return Json(std::move(items));
}

Json pieces_json(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Json::Array items;
  for (TokenId id : ids) {
    Json item = Json::object();
    item.set("id", id).set("piece", piece_json(tokenizer.token_bytes(id)));
    items.push_back(std::move(item));
  }
  return Json(std::move(items));
}

Json token_strs_json(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Json::Array items;
  for (TokenId id : ids) items.emplace_back(replace_invalid_utf8(tokenizer.token_bytes(id)));
  return Json(std::move(items));
}

Result<Json> tokenize_json(const ReadyModel& model, const FieldContext& context, const Json& body) {
  HR_ASSIGN_OR_RETURN(const TokenizeRequest request, parse_tokenize_request(body, context));
  HR_RETURN_IF_ERROR(check_model_name(model, request.model));
  if (!model.served.tokenizer) return invalid_argument("this model has no tokenizer");
  HR_RETURN_IF_ERROR(check_length(request, context));
  HR_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenize(model, request));
  const Tokenizer& tokenizer = *model.served.tokenizer;
  Json json = Json::object();
  if (request.content) {
    json.set("tokens", request.with_pieces ? pieces_json(tokenizer, ids) : token_ids_json(ids));
    return json;
  }
  json.set("count", ids.size()).set("max_model_len", model.served.max_model_len);
  json.set("tokens", token_ids_json(ids));
  json.set("token_strs", request.return_token_strs ? token_strs_json(tokenizer, ids) : Json());
  return json;
}

// Both names of the text: `prompt` for clients of vLLM, `content` for those of llama.cpp.
Result<Json> detokenize_json(const ReadyModel& model, const FieldContext& context,
                             const Json& body) {
  HR_ASSIGN_OR_RETURN(const DetokenizeRequest request, parse_detokenize_request(body, context));
  HR_RETURN_IF_ERROR(check_model_name(model, request.model));
  if (!model.served.tokenizer) return invalid_argument("this model has no tokenizer");
  const std::string text =
      replace_invalid_utf8(model.served.tokenizer->decode(request.tokens, false));
  Json json = Json::object();
  json.set("prompt", text).set("content", text);
  return json;
}

Result<Json> apply_template_json(const ReadyModel& model, const FieldContext& context,
                                 const Json& body) {
  HR_ASSIGN_OR_RETURN(const TokenizeRequest request, parse_tokenize_request(body, context));
  HR_RETURN_IF_ERROR(check_model_name(model, request.model));
  if (!request.messages) return invalid_argument("messages is missing", "messages");
  if (!model.chat) return invalid_argument("this model has no chat template", "messages");
  HR_ASSIGN_OR_RETURN(
      const std::string text,
      model.chat->render(*request.messages, variables_of(model, request), prompt_options(request)));
  Json json = Json::object();
  json.set("prompt", text);
  return json;
}

using Compute = Result<Json> (*)(const ReadyModel&, const FieldContext&, const Json&);

void answer(RouteCall& call, Compute compute) {
  const Result<Json> json = compute(*call.model, call.state.context_of(*call.model), call.body);
  if (!json.ok()) return call.exchange->respond(bad_request_response(json.status()));
  respond_json(call, *json);
}

}  // namespace

void handle_tokenize(RouteCall& call) { answer(call, tokenize_json); }
void handle_detokenize(RouteCall& call) { answer(call, detokenize_json); }
void handle_apply_template(RouteCall& call) { answer(call, apply_template_json); }

}  // namespace headrace
