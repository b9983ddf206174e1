// What a router keeps of a stream so that another server can go on with it token for token
// (docs/scale.md): the answer's name and seeds, and every arrival from the engine. An event is a
// function of the arrivals so far, so whoever has them all knows what comes next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "server/answer_format.h"
#include "server/arrival_queue.h"

namespace headrace {

// The request's header that asks for a journal, and the member of its body that brings one back.
inline constexpr std::string_view kJournalHeader = "x-headrace-journal";
inline constexpr std::string_view kResumeMember = "headrace_resume";

// The first line of a journal.
struct JournalHead {
  AnswerIdentity identity;
  std::vector<uint64_t> seeds;  // of each prompt: random numbers come from seed, choice, position
  std::string fingerprint;      // of all that decides the next token's bits
};

struct AnswerJournal {
  JournalHead head;
  bool goes_on = false;        // the answer was begun elsewhere:
  std::vector<Arrival> begun;  // so far, as it was told
  bool resend_last = false;    // the events of the last arrival are wanted once more
  bool inexact = false;        // a server of another fingerprint may go on
};

// As a comment of server-sent events, which clients skip.
void append_journal_head(std::string& out, const JournalHead& head);
void append_journal_arrival(std::string& out, const Arrival& arrival);
// In front of the error that ends a stream: another server may do better.
void append_journal_loss(std::string& out, std::string_view why);

// The member of a request's body, which has so many prompts and choices of each. kInvalidArgument:
// it is none, or names a prompt, a choice or a finish that there is not. Any thread.
Result<AnswerJournal> read_resume(const Json& member, size_t prompts, int32_t choices_per_prompt);

}  // namespace headrace
