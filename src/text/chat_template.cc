#include "text/chat_template.h"

#include <ctime>
#include <new>

#include <fmt/core.h>

#include "text/template/template_ast.h"
#include "text/template/template_context.h"
#include "text/template/template_error.h"
#include "text/template/template_eval.h"
#include "text/template/template_parser.h"

namespace headrace {

struct TemplateProgram {
  TemplateLimits limits;
  ast::Body body;
  std::string source;
};

namespace {

// Runs `work`; what the engine throws becomes a Status here and nowhere else.
template <class Work>
auto catch_errors(const Work& work) -> Result<decltype(work())> {
  try {
    return work();
  } catch (const TemplateError& error) {
    return Status(error.code, fmt::format("chat template, line {}: {}", error.line, error.message),
                  "chat_template");
  } catch (const std::bad_alloc&) {
    return exhausted("chat template: out of memory", "chat_template");
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const TemplateProgram> program)
    : program_(std::move(program)) {}

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, TemplateLimits limits) {
  if (source.size() > limits.source_bytes_max) {
    return exhausted(fmt::format("the chat template has {} bytes, more than {}", source.size(),
                                 limits.source_bytes_max),
                     "chat_template");
  }
  return catch_errors([&] {
    TemplateProgram program{limits, parse_template(source, limits.depth_max), std::string(source)};
    return ChatTemplate(std::make_shared<const TemplateProgram>(std::move(program)));
  });
}

bool ChatTemplate::may_read(std::string_view variable) const {
  return program_->source.find(variable) != std::string::npos;
}

std::string_view ChatTemplate::source() const { return program_->source; }

Result<std::string> ChatTemplate::render(const Json& variables, int64_t now_unix_s) const {
  if (!variables.is_object()) return invalid_argument("template variables are not an object");
  return catch_errors([&] {
    TemplateContext context(program_->limits, now_unix_s);
    return TemplateEvaluator(context, variables).run(program_->body);
  });
}

Result<std::string> ChatTemplate::render(const Json& variables) const {
  return render(variables, static_cast<int64_t>(std::time(nullptr)));
}

namespace {

// gpt-oss' name of an earlier turn's thoughts. Its template refuses them beside a text that comes
// with calls, which it takes for the thought then.
void add_thinking(Json& messages) {
  for (Json& message : messages.as_array()) {
    const Json* thoughts = message.find("reasoning_content");
    if (thoughts == nullptr || !thoughts->is_string() || message.find("thinking")) continue;
    const Json* text = message.find("content");
    const Json* calls = message.find("tool_calls");
    const bool has_text = text != nullptr && text->is_string() && !text->as_string().empty();
    if (has_text && calls != nullptr && !calls->is_null()) continue;
    message.set("thinking", Json(*thoughts));
  }
}

}  // namespace

Result<std::string> render_chat(const ChatTemplate& chat_template, const Vocab& vocab,
                                Json messages, Json tools, bool add_generation_prompt, Json extra) {
  if (!messages.is_array()) return invalid_argument("messages is not an array", "messages");
  if (!tools.is_null() && !tools.is_array())
    return invalid_argument("tools is not an array", "tools");
  if (chat_template.may_read("thinking")) add_thinking(messages);
  Json variables = Json::object();
  variables.set("messages", std::move(messages));
  variables.set("tools", std::move(tools));
  variables.set("add_generation_prompt", add_generation_prompt);
  const auto set_token = [&](std::string_view name, TokenId id) {
    if (id < 0 || static_cast<size_t>(id) >= vocab.tokens.size()) return;
    variables.set(name, vocab.tokens[static_cast<size_t>(id)]);
  };
  set_token("bos_token", vocab.bos);
  set_token("eos_token", vocab.eos);
  set_token("pad_token", vocab.pad);
  set_token("unk_token", vocab.unk);
  if (extra.is_object()) variables.merge(std::move(extra.as_object()));
  return chat_template.render(variables);
}

}  // namespace headrace
