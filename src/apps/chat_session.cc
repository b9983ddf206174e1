#include "apps/chat_session.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

// An answer gets at least this much of the context; below, old turns are dropped.
constexpr int64_t kAnswerRoomTokens = 128;

struct NumberRange {
  double low, high;
  bool whole = false;
};

Result<double> parse_number(std::string_view name, std::string_view text, NumberRange range) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size();
  const bool fits = number && value >= range.low && value <= range.high;
  if (fits && (!range.whole || value == std::floor(value))) return value;
  return invalid_argument(fmt::format("{} must be a {}number from {} to {}", name,
                                      range.whole ? "whole " : "", range.low, range.high));
}

constexpr double kIntMax = std::numeric_limits<int32_t>::max();

// The parameters that a chat can set.
struct ChatParameter {
  std::string_view name;
  NumberRange range;
  void (*store)(SamplingParams& sampling, double value);
};
constexpr ChatParameter kChatParameters[] = {
    {"temperature",
     {0, 100},
     [](SamplingParams& s, double v) { s.temperature = static_cast<float>(v); }},
    {"top_p", {1e-6, 1}, [](SamplingParams& s, double v) { s.top_p = static_cast<float>(v); }},
    {"top_k",
     {0, kIntMax, true},
     [](SamplingParams& s, double v) { s.top_k = static_cast<int32_t>(v); }},
    {"min_p", {0, 1}, [](SamplingParams& s, double v) { s.min_p = static_cast<float>(v); }},
    {"repetition_penalty",
     {0.01, 100},
     [](SamplingParams& s, double v) { s.repetition_penalty = static_cast<float>(v); }},
    {"presence_penalty",
     {-2, 2},
     [](SamplingParams& s, double v) { s.presence_penalty = static_cast<float>(v); }},
    {"frequency_penalty",
     {-2, 2},
     [](SamplingParams& s, double v) { s.frequency_penalty = static_cast<float>(v); }},
    {"max_tokens",
     {-1, kIntMax, true},
     [](SamplingParams& s, double v) { s.max_tokens = static_cast<int32_t>(v); }},
    {"seed",
     {0, 0x1p53, true},
     [](SamplingParams& s, double v) { s.seed = static_cast<uint64_t>(v); }},
};

}  // namespace

void ChatSampling::name(std::string_view parameter) {
  if (std::find(named.begin(), named.end(), parameter) == named.end()) {
    named.emplace_back(parameter);
  }
}

ChatSession::ChatSession(ChatBackend& backend, ChatSampling sampling, Say say)
    : backend_(backend), sampling_(std::move(sampling)), say_(std::move(say)) {}

void ChatSession::replace(Conversation conversation) {
  conversation_ = std::move(conversation);
  unanswered_.reset();
}

void ChatSession::begin_asking() {
  before_ = conversation_;
  if (!unanswered_) return;
  unanswered_->set_system(conversation_.system());
  conversation_ = *std::exchange(unanswered_, std::nullopt);
}

void ChatSession::ask(std::string_view text) {
  unanswered_.reset();
  begin_asking();
  conversation_.add_user(text);
}

bool ChatSession::ask_again() {
  if (!last_question()) return false;
  begin_asking();
  return conversation_.rewind_to_user();
}

bool ChatSession::ask_instead(std::string_view text) {
  if (!ask_again()) return false;
  conversation_.take_back();
  conversation_.add_user(text);
  return true;
}

std::optional<std::string> ChatSession::last_question() const {
  return (unanswered_ ? *unanswered_ : conversation_).last_of("user");
}

Result<std::unique_ptr<ChatAnswer>> ChatSession::begin_answer() {
  const auto start = [this]() -> Result<std::unique_ptr<ChatAnswer>> {
    HR_ASSIGN_OR_RETURN(const Json messages, prompt_messages());
    return backend_.answer(messages, sampling_);
  };
  Result<std::unique_ptr<ChatAnswer>> answer = start();
  if (!answer.ok()) put_back();
  return answer;
}

void ChatSession::put_back() { unanswered_ = std::exchange(conversation_, before_); }

Result<Json> ChatSession::prompt_messages() const {
  const int64_t context = backend_.context_tokens();
  if (context == 0) return conversation_.all_messages();  // a server says so itself
  const auto fits = [&](const Json& messages) -> Result<bool> {
    HR_ASSIGN_OR_RETURN(const int64_t tokens, backend_.count_tokens(messages));
    return tokens + kAnswerRoomTokens <= context;
  };
  HR_ASSIGN_OR_RETURN(const bool all_fit, fits(conversation_.all_messages()));
  // Fewer than `low` dropped turns are too few; `high` is enough, or all that can go.
  int low = 1, high = conversation_.turns() - 1;
  if (all_fit || high < 1) return conversation_.all_messages();
  while (low < high) {
    const int middle = low + (high - low) / 2;
    HR_ASSIGN_OR_RETURN(const bool enough,
                        fits(conversation_.without_oldest(middle).all_messages()));
    (enough ? high : low) = enough ? middle : middle + 1;
  }
  say_(fmt::format(
      "(the context of {} tokens is full: {} oldest turns were dropped from the prompt)", context,
      high));
  return conversation_.without_oldest(high).all_messages();
}

void ChatSession::end_answer(const ChatAnswer& answer, std::string_view text) {
  if (text.empty()) {
    put_back();
    return;
  }
  conversation_.add_answer(text);
  const AnswerTimings timings = answer.timings();
  ++answers_;
  totals_.prompt_tokens += timings.prompt_tokens;
  totals_.predicted_tokens += timings.predicted_tokens;
  totals_.prompt_seconds += timings.prompt_seconds;
  totals_.predicted_seconds += timings.predicted_seconds;
}

Status set_parameter(SamplingParams& sampling, std::string_view name, std::string_view value) {
  for (const ChatParameter& parameter : kChatParameters) {
    if (parameter.name != name) continue;
    HR_ASSIGN_OR_RETURN(const double number, parse_number(name, value, parameter.range));
    parameter.store(sampling, number);
    return ok_status();
  }
  return invalid_argument(fmt::format("'{}' cannot be set: {} can", name, parameter_names()));
}

std::string parameter_names() {
  std::string names;
  for (const ChatParameter& parameter : kChatParameters) {
    names += (names.empty() ? "" : ", ") + std::string(parameter.name);
  }
  return names;
}

}  // namespace headrace
