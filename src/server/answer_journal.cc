#include "server/answer_journal.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

struct FinishName {
  FinishReason reason;
  std::string_view name;
};
// Faults and aborts end a stream with an error, and are no part of a journal.
constexpr std::array<FinishName, 4> kFinishNames = {{{FinishReason::kStop, "stop"},
                                                     {FinishReason::kLength, "length"},
                                                     {FinishReason::kRepetition, "repetition"},
                                                     {FinishReason::kDeadEnd, "dead_end"}}};

void append_line(std::string& out, const Json& json) {
  out += ": journal ";
  out += write_json(json);
  out += "\n\n";
}

// JSON has no infinity: null stands for the log-probability of what cannot be.
Json value_of(float logprob) { return std::isinf(logprob) ? Json() : Json(double{logprob}); }

Json logprobs_json(const TokenLogprobs& logprobs) {
  Json json = Json::array();
  json.push(logprobs.token).push(value_of(logprobs.logprob));
  for (const auto& [token, logprob] : logprobs.top) json.push(token).push(value_of(logprob));
  return json;
}

Status malformed(std::string_view what) {
  return invalid_argument(fmt::format("{}: {} is missing or malformed", kResumeMember, what),
                          std::string(kResumeMember));
}

const Json* array_of(const Json& json, std::string_view name) {
  const Json* member = json.find(name);
  return member != nullptr && member->is_array() ? member : nullptr;
}

std::optional<int32_t> int32_of(const Json& json) {
  if (!json.is_int() || json.as_int() < 0) return std::nullopt;
  if (json.as_int() > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return static_cast<int32_t>(json.as_int());
}

// A member that is 0 where it is absent.
std::optional<int32_t> int32_member(const Json& json, std::string_view name) {
  const Json* member = json.find(name);
  return member == nullptr ? std::optional<int32_t>(0) : int32_of(*member);
}

std::optional<uint64_t> number_in_text(const Json* json) {
  if (json == nullptr || !json->is_string()) return std::nullopt;
  const std::string& text = json->as_string();
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<float> logprob_of(const Json& json) {
  if (json.is_null()) return -std::numeric_limits<float>::infinity();
  if (!json.is_number()) return std::nullopt;
  return static_cast<float>(json.as_double());
}

std::optional<TokenLogprobs> read_logprobs(const Json& json) {
  if (!json.is_array() || json.as_array().empty() || json.as_array().size() % 2 != 0) return {};
  TokenLogprobs logprobs;
  for (size_t i = 0; i < json.as_array().size(); i += 2) {
    const auto token = int32_of(json.as_array()[i]);
    const auto logprob = logprob_of(json.as_array()[i + 1]);
    if (!token || !logprob) return std::nullopt;
    if (i == 0) {
      logprobs.token = *token;
      logprobs.logprob = *logprob;
    } else {
      logprobs.top.emplace_back(*token, *logprob);
    }
  }
  return logprobs;
}

Status read_head(const Json* json, size_t prompts, JournalHead& head) {
  if (json == nullptr || !json->is_object()) return malformed("head");
  const Json* id = json->find("id");
  const Json* created = json->find("created");
  const Json* fingerprint = json->find("fingerprint");
  const auto call_seed = number_in_text(json->find("call_seed"));
  const Json* seeds = array_of(*json, "seeds");
  if (id == nullptr || !id->is_string()) return malformed("head.id");
  if (created == nullptr || !created->is_int()) return malformed("head.created");
  if (!call_seed) return malformed("head.call_seed");
  if (fingerprint == nullptr || !fingerprint->is_string()) return malformed("head.fingerprint");
  if (seeds == nullptr || seeds->as_array().size() != prompts) return malformed("head.seeds");
  head.identity = {id->as_string(), created->as_int(), *call_seed};
  head.fingerprint = fingerprint->as_string();
  for (const Json& each : seeds->as_array()) {
    const auto seed = number_in_text(&each);
    if (!seed) return malformed("head.seeds");
    head.seeds.push_back(*seed);
  }
  return ok_status();
}

// False: malformed.
bool read_finish(const Json& json, Emission& emission) {
  if (const Json* name = json.find("f")) {
    for (const FinishName& each : kFinishNames) {
      if (name->is_string() && name->as_string() == each.name) emission.finish = each.reason;
    }
    if (emission.finish == FinishReason::kNone) return false;
  }
  if (const Json* stop = json.find("s")) {
    emission.stop_token = int32_of(*stop);
    if (!emission.stop_token) return false;
  }
  return true;
}

bool read_arrival(const Json& json, Arrival& arrival) {
  Emission& emission = arrival.emission;
  const auto prompt = int32_member(json, "p"), choice = int32_member(json, "c");
  const auto cached = int32_member(json, "k");
  const Json* tokens = array_of(json, "t");
  if (!prompt || !choice || !cached || tokens == nullptr || !read_finish(json, emission)) {
    return false;
  }
  arrival.prompt = static_cast<size_t>(*prompt);
  emission.choice = *choice;
  emission.cached_tokens = *cached;
  for (const Json& each : tokens->as_array()) {
    const auto token = int32_of(each);
    if (!token) return false;
    emission.tokens.push_back(*token);
  }
  const Json* logprobs = json.find("l");
  if (logprobs == nullptr) return true;
  if (!logprobs->is_array() || logprobs->as_array().size() != emission.tokens.size()) return false;
  for (const Json& each : logprobs->as_array()) {
    auto read = read_logprobs(each);
    if (!read) return false;
    emission.logprobs.push_back(*std::move(read));
  }
  return true;
}

}  // namespace

void append_journal_head(std::string& out, const JournalHead& head) {
  Json seeds = Json::array();
  for (const uint64_t seed : head.seeds) seeds.push(fmt::to_string(seed));
  Json json = Json::object();
  json.set("id", head.identity.id).set("created", head.identity.created_unix_s);
  json.set("call_seed", fmt::to_string(head.identity.call_id_seed)).set("seeds", std::move(seeds));
  json.set("fingerprint", head.fingerprint);
  append_line(out, Json::object().set("head", std::move(json)));
}

void append_journal_arrival(std::string& out, const Arrival& arrival) {
  const Emission& emission = arrival.emission;
  Json json = Json::object(), tokens = Json::array();
  if (arrival.prompt != 0) json.set("p", arrival.prompt);
  if (emission.choice != 0) json.set("c", emission.choice);
  for (const TokenId token : emission.tokens) tokens.push(token);
  json.set("t", std::move(tokens));
  if (!emission.logprobs.empty()) {
    Json logprobs = Json::array();
    for (const TokenLogprobs& each : emission.logprobs) logprobs.push(logprobs_json(each));
    json.set("l", std::move(logprobs));
  }
  for (const FinishName& each : kFinishNames) {
    if (emission.finish == each.reason) json.set("f", each.name);
  }
  if (emission.stop_token) json.set("s", *emission.stop_token);
  if (emission.cached_tokens != 0) json.set("k", emission.cached_tokens);
  append_line(out, json);
}

void append_journal_loss(std::string& out, std::string_view why) {
  append_line(out, Json::object().set("lost", why));
}

Result<AnswerJournal> read_resume(const Json& member, size_t prompts, int32_t choices_per_prompt) {
  const auto flag = [&](std::string_view name) {
    const Json* value = member.find(name);
    return value != nullptr && value->is_bool() && value->as_bool();
  };
  AnswerJournal journal;
  journal.goes_on = true;
  HR_RETURN_IF_ERROR(read_head(member.find("head"), prompts, journal.head));
  journal.resend_last = flag("resend_last");
  journal.inexact = flag("inexact");
  const Json* arrivals = array_of(member, "journal");
  if (arrivals == nullptr) return malformed("journal");
  for (size_t i = 0; i < arrivals->as_array().size(); ++i) {
    Arrival arrival;
    const bool read = read_arrival(arrivals->as_array()[i], arrival);
    if (!read || arrival.prompt >= prompts || arrival.emission.choice >= choices_per_prompt) {
      return malformed(fmt::format("journal[{}]", i));
    }
    journal.begun.push_back(std::move(arrival));
  }
  return journal;
}

}  // namespace headrace
