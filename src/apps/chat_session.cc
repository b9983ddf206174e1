#include "apps/chat_session.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

// An answer gets at least this much of the context; below, old turns are dropped.
constexpr int64_t kAnswerRoomTokens = 128;

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
    {"top_k", {0, kIntMax}, [](SamplingParams& s, double v) { s.top_k = static_cast<int32_t>(v); }},
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
     {-1, kIntMax},
     [](SamplingParams& s, double v) { s.max_tokens = static_cast<int32_t>(v); }},
    {"seed", {0, 0x1p53}, [](SamplingParams& s, double v) { s.seed = static_cast<uint64_t>(v); }},
};

}  // namespace

void ChatSampling::name(std::string_view parameter) {
  if (std::find(named.begin(), named.end(), parameter) == named.end()) {
    named.emplace_back(parameter);
  }
}

ChatSession::ChatSession(ChatBackend& backend, ChatSampling sampling, Say say)
    : backend_(backend), sampling_(std::move(sampling)), say_(std::move(say)) {}

Result<std::unique_ptr<ChatAnswer>> ChatSession::begin_answer() {
  const auto start = [this]() -> Result<std::unique_ptr<ChatAnswer>> {
    HR_RETURN_IF_ERROR(make_room());
    return backend_.answer(conversation_.all_messages(), sampling_);
  };
  Result<std::unique_ptr<ChatAnswer>> answer = start();
  if (!answer.ok()) conversation_.take_back();
  return answer;
}

Status ChatSession::make_room() {
  const int64_t context = backend_.context_tokens();
  if (context == 0) return ok_status();  // a server says so itself
  HR_ASSIGN_OR_RETURN(int64_t tokens, backend_.count_tokens(conversation_.all_messages()));
  int dropped = 0;
  while (tokens + kAnswerRoomTokens > context && conversation_.drop_oldest_turn()) {
    ++dropped;
    HR_ASSIGN_OR_RETURN(tokens, backend_.count_tokens(conversation_.all_messages()));
  }
  if (dropped > 0) {
    say_(fmt::format("(the context of {} tokens is full: {} oldest turns were dropped)", context,
                     dropped));
  }
  return ok_status();
}

void ChatSession::end_answer(const ChatAnswer& answer, std::string_view text) {
  if (text.empty()) {
    conversation_.take_back();
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
