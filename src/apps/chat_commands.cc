#include "apps/chat_commands.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

std::string_view trim_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

const ChatCommands::Command ChatCommands::kCommands[] = {
    {"/help", "", "this list", &ChatCommands::help},
    {"/exit", "", "leave (also Ctrl-D, or Ctrl-C twice)", &ChatCommands::exit},
    {"/quit", "", "leave", &ChatCommands::exit},
    {"/clear", "", "forget the conversation", &ChatCommands::clear},
    {"/system", "TEXT", "set the system message (no text: the model's own)", &ChatCommands::system},
    {"/retry", "", "answer the last message again", &ChatCommands::retry},
    {"/regen", "", "the same", &ChatCommands::retry},
    {"/edit", "[TEXT]", "change the last message and answer it", &ChatCommands::edit},
    {"/copy", "[code]", "the last answer, or its last code, to the clipboard", &ChatCommands::copy},
    {"/save", "[NAME]", "keep the conversation by a name (or FILE.json)", &ChatCommands::save},
    {"/load", "[NAME]", "go on with one; without a name: list them", &ChatCommands::load},
    {"/set", "NAME X", "how tokens are chosen; without a name: list what can be set",
     &ChatCommands::set},
    {"/model", "[NAME]", "go on with another model; without a name: list them",
     &ChatCommands::model},
    {"/tokens", "", "size of the conversation, tokens and speed so far", &ChatCommands::tokens},
    {"/stats", "", "the same", &ChatCommands::tokens},
};

ChatCommands::ChatCommands(ChatSession& session, const SavedChats& saved, Say say, Copy copy)
    : session_(session), saved_(saved), say_(std::move(say)), copy_(std::move(copy)) {}

ChatCommands::Next ChatCommands::take(std::string_view input) {
  const std::string_view text = trim_blanks(input);
  if (text.empty()) return Next::kRead;
  // A path or a comment that was pasted begins with "/", too, but has no command's name.
  if (!text.starts_with('/')) {
    session_.ask(text);
    return Next::kAnswer;
  }
  const std::string_view name = text.substr(0, text.find_first_of(" \t\n"));
  for (const Command& command : kCommands) {
    if (command.name == name) return (this->*command.run)(trim_blanks(text.substr(name.size())));
  }
  say_(fmt::format("{} is no command: /help lists them", name));
  return Next::kRead;
}

ChatCommands::Next ChatCommands::replace_last(std::string_view text) {
  text = trim_blanks(text);
  return !text.empty() && session_.ask_instead(text) ? Next::kAnswer : Next::kRead;
}

std::string ChatCommands::last_message() const { return session_.last_question().value_or(""); }

std::vector<std::string> ChatCommands::names() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  return names;
}

ChatCommands::Next ChatCommands::help(std::string_view) {
  for (const Command& command : kCommands) {
    say_(fmt::format("  {:<16} {}", fmt::format("{} {}", command.name, command.argument),
                     command.summary));
  }
  say_("  A line that ends in \\ goes on in the next; \"\"\" begins and ends a block of lines;");
  say_("  what is pasted is one input. Tab completes a command. Ctrl-C stops an answer.");
  return Next::kRead;
}

ChatCommands::Next ChatCommands::clear(std::string_view) {
  Conversation empty;
  empty.set_system(session_.conversation().system());
  session_.replace(std::move(empty));
  names_.clear();
  say_("(conversation cleared)");
  return Next::kRead;
}

ChatCommands::Next ChatCommands::system(std::string_view text) {
  session_.conversation().set_system(text);
  say_(text.empty() ? "(the model's own system message)" : "(system message set)");
  return Next::kRead;
}

ChatCommands::Next ChatCommands::save(std::string_view name) {
  if (name.empty() && !names_.empty()) name = names_.back();
  const bool insists = name.ends_with('!');
  if (insists) name = trim_blanks(name.substr(0, name.size() - 1));
  if (name.empty()) {
    say_("/save NAME: the conversation has no name yet");
    return Next::kRead;
  }
  const std::string kept(name);
  const bool ours = std::find(names_.begin(), names_.end(), kept) != names_.end();
  if (!insists && !ours && saved_.has(kept)) {
    say_(fmt::format("there is a chat '{0}' already: /save {0}! replaces it, another name keeps it",
                     kept));
    return Next::kRead;
  }
  const Result<std::string> path = saved_.save(kept, session_.conversation());
  say_(path.ok() ? fmt::format("(saved to {})", *path) : path.status().message());
  if (path.ok()) names_.push_back(kept);
  return Next::kRead;
}

ChatCommands::Next ChatCommands::load(std::string_view name) {
  if (name.empty()) {
    list_saved();
    return Next::kRead;
  }
  Result<Conversation> loaded = saved_.load(name);
  if (!loaded.ok()) {
    say_(loaded.status().message());
    return Next::kRead;
  }
  session_.replace(*std::move(loaded));
  loaded_as(name);
  say_(fmt::format("({} messages loaded)", session_.conversation().messages().as_array().size()));
  return Next::kRead;
}

void ChatCommands::list_saved() {
  const std::vector<std::string> names = saved_.names();
  if (names.empty()) say_("no chat is saved: /save NAME keeps this one");
  for (const std::string& name : names) say_("  " + name);
}

ChatCommands::Next ChatCommands::retry(std::string_view) {
  if (session_.ask_again()) return Next::kAnswer;
  say_("there is no message to answer yet");
  return Next::kRead;
}

ChatCommands::Next ChatCommands::edit(std::string_view text) {
  if (!session_.last_question()) {
    say_("there is no message to change yet");
    return Next::kRead;
  }
  return text.empty() ? Next::kEdit : replace_last(text);
}

ChatCommands::Next ChatCommands::copy(std::string_view what) {
  std::optional<std::string> text = session_.conversation().last_of("assistant");
  if (text && what == "code") text = last_code_block(*text);
  if (!text) {
    say_(what == "code" ? "the last answer has no code" : "there is no answer to copy yet");
  } else if (!copy_ || !copy_(*text)) {
    say_("there is no clipboard: this is no terminal");
  } else {
    say_(fmt::format("({} bytes were given to the terminal's clipboard)", text->size()));
  }
  return Next::kRead;
}

ChatCommands::Next ChatCommands::set(std::string_view assignment) {
  if (assignment.empty()) {
    say_("  /set NAME X, of: " + parameter_names());
    return Next::kRead;
  }
  const std::string_view name = assignment.substr(0, assignment.find_first_of(" ="));
  const std::string_view value =
      name.size() == assignment.size() ? "" : trim_blanks(assignment.substr(name.size() + 1));
  ChatSampling& sampling = session_.sampling();
  const Status status = set_parameter(sampling.params, name, value);
  if (status.ok()) sampling.name(name);
  say_(status.ok() ? fmt::format("({} = {})", name, value) : status.message());
  return Next::kRead;
}

ChatCommands::Next ChatCommands::model(std::string_view name) {
  if (name.empty()) {
    list_models();
    return Next::kRead;
  }
  const Status status = session_.backend().use_model(std::string(name));
  say_(status.ok() ? fmt::format("({})", session_.backend().title()) : status.message());
  return Next::kRead;
}

void ChatCommands::list_models() {
  say_("  now: " + session_.backend().title());
  const Result<std::vector<std::string>> models = session_.backend().models();
  if (!models.ok()) {
    say_("  " + models.status().message());
    return;
  }
  for (const std::string& each : *models) say_("  " + each);
}

ChatCommands::Next ChatCommands::tokens(std::string_view) {
  const AnswerTimings& totals = session_.totals();
  const Result<int64_t> now =
      session_.conversation().empty()
          ? Result<int64_t>(0)
          : session_.backend().count_tokens(session_.conversation().all_messages());
  const int64_t context = session_.backend().context_tokens();
  if (now.ok() && context > 0) {
    say_(fmt::format("  the conversation has {} tokens of the {} that the context holds", *now,
                     context));
  }
  say_(fmt::format("  {} answers; prompts {} tokens, {:.1f} tok/s; answers {} tokens, {:.1f} tok/s",
                   session_.answers(), totals.prompt_tokens, totals.prompt_per_second(),
                   totals.predicted_tokens, totals.predicted_per_second()));
  say_("  " + session_.backend().title());
  return Next::kRead;
}

}  // namespace headrace
