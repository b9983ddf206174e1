#include "apps/chat_prompt.h"

#include "text/chat_prompt.h"

namespace headrace {
namespace {

Status check_tokenizer(const ModelStack& stack) {
  if (stack.tokenizer() != nullptr) return ok_status();
  return unsupported("the model has no vocabulary: it takes token ids only (bench, eval score)");
}

}  // namespace

Json chat_message(std::string_view role, std::string_view content) {
  return Json::object().set("role", role).set("content", content);
}

Result<std::vector<TokenId>> encode_chat(const ModelStack& stack, const Json& messages) {
  HR_RETURN_IF_ERROR(check_tokenizer(stack));
  if (stack.chat_template() == nullptr) {
    return unsupported("the model has no chat template: use 'headrace run --raw'");
  }
  HR_ASSIGN_OR_RETURN(const auto encoder,
                      ChatPromptEncoder::create(*stack.tokenizer(), *stack.chat_template()));
  return encoder->encode(messages, Json(), {});
}

Result<std::vector<TokenId>> encode_text(const ModelStack& stack, std::string_view text) {
  HR_RETURN_IF_ERROR(check_tokenizer(stack));
  return stack.tokenizer()->encode(text);
}

}  // namespace headrace
