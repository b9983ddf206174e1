#include "apps/chat_session.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "apps/chat_prompt.h"

namespace headrace {
namespace {

// An answer gets at least this much of the context; below, old turns are dropped.
constexpr int32_t kAnswerRoomTokens = 128;

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

struct NumberRange {
  double low, high;
};

Result<double> parse_number(std::string_view name, std::string_view text, NumberRange range) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (whole && value >= range.low && value <= range.high) return value;
  return invalid_argument(
      fmt::format("{} must be a number from {} to {}", name, range.low, range.high));
}

bool is_message(const Json& value) {
  const Json *role = value.find("role"), *content = value.find("content");
  return role != nullptr && role->is_string() && content != nullptr && content->is_string();
}

bool has_role(const Json& message, std::string_view role) {
  return message.find("role")->as_string() == role;
}

}  // namespace

const ChatSession::Command ChatSession::kCommands[] = {
    {"/help", "", "this list", &ChatSession::help},
    {"/exit", "", "leave (also Ctrl-D)", &ChatSession::exit},
    {"/quit", "", "leave", &ChatSession::exit},
    {"/clear", "", "forget the conversation", &ChatSession::clear},
    {"/system", "TEXT", "set the system message (no text: the model's own)",
     &ChatSession::set_system},
    {"/save", "FILE", "write the conversation as JSON", &ChatSession::save},
    {"/load", "FILE", "go on with a conversation written by /save", &ChatSession::load},
    {"/regen", "", "answer the last message again", &ChatSession::regenerate},
    {"/set", "NAME X", "temperature, top_p, top_k, min_p, repetition_penalty, max_tokens, seed",
     &ChatSession::set},
    {"/stats", "", "tokens and speed so far", &ChatSession::show_stats},
};

ChatSession::ChatSession(ModelStack& stack, ChatOptions options, Say say)
    : stack_(stack), options_(std::move(options)), say_(std::move(say)) {}

ChatSession::Next ChatSession::take(std::string_view input) {
  const std::string_view text = trim(input);
  if (text.empty()) return Next::kRead;
  if (!text.starts_with('/')) {
    messages_.push(chat_message("user", text));
    return Next::kAnswer;
  }
  const std::string_view name = text.substr(0, text.find_first_of(" \t\n"));
  for (const Command& command : kCommands) {
    if (command.name == name) return (this->*command.run)(trim(text.substr(name.size())));
  }
  say_(fmt::format("{} is no command: /help lists them", name));
  return Next::kRead;
}

Result<std::unique_ptr<Answer>> ChatSession::begin_answer() {
  const auto start = [&]() -> Result<std::unique_ptr<Answer>> {
    const auto context = static_cast<size_t>(stack_.info().max_model_len);
    HR_ASSIGN_OR_RETURN(std::vector<TokenId> ids, encode());
    int dropped = 0;
    while (ids.size() + kAnswerRoomTokens > context && drop_oldest_turn()) {
      ++dropped;
      HR_ASSIGN_OR_RETURN(ids, encode());
    }
    if (dropped > 0) {
      say_(fmt::format("(the context of {} tokens is full: {} oldest turns were dropped)", context,
                       dropped));
    }
    return Answer::start(
        stack_, {.prompt = std::move(ids), .sampling = options_.sampling, .stops = options_.stops});
  };
  Result<std::unique_ptr<Answer>> answer = start();
  if (!answer.ok()) messages_.as_array().pop_back();
  return answer;
}

void ChatSession::end_answer(const Answer& answer, std::string text) {
  messages_.push(chat_message("assistant", text));
  const AnswerTimings& timings = answer.timings();
  ++answers_;
  totals_.prompt_tokens += timings.prompt_tokens;
  totals_.predicted_tokens += timings.predicted_tokens;
  totals_.prompt_seconds += timings.prompt_seconds;
  totals_.predicted_seconds += timings.predicted_seconds;
}

Result<std::vector<TokenId>> ChatSession::encode() const {
  if (options_.system.empty()) return encode_chat(stack_, messages_);
  Json all = Json::array();
  all.push(chat_message("system", options_.system));
  for (const Json& message : messages_.as_array()) all.push(message);
  return encode_chat(stack_, all);
}

bool ChatSession::drop_oldest_turn() {
  Json::Array& messages = messages_.as_array();
  if (messages.size() <= 1) return false;
  // A turn is all up to the user's next message.
  auto next = messages.begin() + 1;
  while (next + 1 != messages.end() && !has_role(*next, "user")) ++next;
  messages.erase(messages.begin(), next);
  return true;
}

ChatSession::Next ChatSession::help(std::string_view) {
  for (const Command& command : kCommands) {
    say_(fmt::format("  {:<16} {}", fmt::format("{} {}", command.name, command.argument),
                     command.summary));
  }
  say_(
      "  A line that ends in \\ goes on in the next; \"\"\" begins and ends a block of lines; "
      "what");
  say_("  is pasted is one input.");
  say_("  Ctrl-C stops an answer.");
  return Next::kRead;
}

ChatSession::Next ChatSession::clear(std::string_view) {
  messages_ = Json::array();
  say_("(conversation cleared)");
  return Next::kRead;
}

ChatSession::Next ChatSession::set_system(std::string_view text) {
  options_.system = text;
  say_(text.empty() ? "(the model's own system message)" : "(system message set)");
  return Next::kRead;
}

ChatSession::Next ChatSession::save(std::string_view path) {
  Json all = Json::array();
  if (!options_.system.empty()) all.push(chat_message("system", options_.system));
  for (const Json& message : messages_.as_array()) all.push(message);
  std::ofstream file{std::string(path)};
  file << write_json(all) << '\n';
  file.close();
  say_(file ? fmt::format("(saved to {})", path) : fmt::format("cannot write '{}'", path));
  return Next::kRead;
}

ChatSession::Next ChatSession::load(std::string_view path) {
  std::ifstream file{std::string(path)};
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Result<Json> messages = file ? parse_messages(text) : Result<Json>(not_found("cannot be read"));
  if (!messages.ok()) {
    say_(fmt::format("'{}': {}", path, messages.status().message()));
    return Next::kRead;
  }
  Json::Array& loaded = messages->as_array();
  options_.system.clear();
  if (!loaded.empty() && has_role(loaded.front(), "system")) {
    options_.system = loaded.front().find("content")->as_string();
    loaded.erase(loaded.begin());
  }
  messages_ = std::move(*messages);
  say_(fmt::format("({} messages loaded)", messages_.as_array().size()));
  return Next::kRead;
}

ChatSession::Next ChatSession::regenerate(std::string_view) {
  Json::Array& messages = messages_.as_array();
  while (!messages.empty() && !has_role(messages.back(), "user")) messages.pop_back();
  if (!messages.empty()) return Next::kAnswer;
  say_("there is no message to answer yet");
  return Next::kRead;
}

ChatSession::Next ChatSession::set(std::string_view assignment) {
  const std::string_view name = assignment.substr(0, assignment.find_first_of(" ="));
  const std::string_view value =
      name.size() == assignment.size() ? "" : trim(assignment.substr(name.size() + 1));
  const Status status = set_parameter(options_.sampling, name, value);
  say_(status.ok() ? fmt::format("({} = {})", name, value) : status.message());
  return Next::kRead;
}

ChatSession::Next ChatSession::show_stats(std::string_view) {
  say_(fmt::format("  {} answers; prompts {} tokens, {:.1f} tok/s; answers {} tokens, {:.1f} tok/s",
                   answers_, totals_.prompt_tokens, totals_.prompt_per_second(),
                   totals_.predicted_tokens, totals_.predicted_per_second()));
  const StackInfo& info = stack_.info();
  say_(fmt::format("  {}, {} threads, context {} tokens", info.model_name, info.threads,
                   info.max_model_len));
  return Next::kRead;
}

Status set_parameter(SamplingParams& sampling, std::string_view name, std::string_view value) {
  constexpr double kIntMax = std::numeric_limits<int32_t>::max();
  const auto set_float = [&](float& target, NumberRange range) -> Status {
    HR_ASSIGN_OR_RETURN(const double number, parse_number(name, value, range));
    target = static_cast<float>(number);
    return ok_status();
  };
  const auto set_int = [&](int32_t& target, NumberRange range) -> Status {
    HR_ASSIGN_OR_RETURN(const double number, parse_number(name, value, range));
    target = static_cast<int32_t>(number);
    return ok_status();
  };
  if (name == "temperature") return set_float(sampling.temperature, {0, 100});
  if (name == "top_p") return set_float(sampling.top_p, {1e-6, 1});
  if (name == "min_p") return set_float(sampling.min_p, {0, 1});
  if (name == "repetition_penalty") return set_float(sampling.repetition_penalty, {0.01, 100});
  if (name == "top_k") return set_int(sampling.top_k, {0, kIntMax});
  if (name == "max_tokens") return set_int(sampling.max_tokens, {-1, kIntMax});
  if (name == "seed") {
    HR_ASSIGN_OR_RETURN(const double number, parse_number(name, value, {0, 0x1p53}));
    sampling.seed = static_cast<uint64_t>(number);
    return ok_status();
  }
  return invalid_argument(fmt::format("'{}' cannot be set: /help lists what can", name));
}

Result<Json> parse_messages(std::string_view text) {
  HR_ASSIGN_OR_RETURN(Json json, parse_json(text));
  if (!json.is_array()) return invalid_argument("expected an array of messages");
  for (const Json& message : json.as_array()) {
    if (!is_message(message)) {
      return invalid_argument("each message must have a role and a content, both texts");
    }
  }
  return json;
}

}  // namespace headrace
