// One answer under way: requests in the engine on one side, an exchange on the other.
//
// Threads: the engine's thread only puts emissions into the ArrivalQueue, which asks for the
// strand; text, JSON and writing happen on the exchange's strand. The connection keeps the session
// alive, the engine never does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/answer_budget.h"
#include "server/answer_format.h"
#include "server/answer_journal.h"
#include "server/arrival_queue.h"
#include "server/choice_stream.h"
#include "server/exchange.h"
#include "server/generation_request.h"
#include "server/key_quota.h"
#include "server/request_span.h"
#include "server/server_state.h"

namespace headrace {

// What a route found in a request: all that an answer needs.
struct GenerationPlan {
  ModelLease model;                        // that answers
  std::shared_ptr<const Adapter> adapter;  // over its weights; nullptr: none. Goes before it
  GenerationSettings settings;             // sampling.max_tokens is final
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::string> echo;                      // with echo: the text of each prompt
  std::shared_ptr<const TokenConstraint> constraint;  // the form of the answers; nullptr: none
  std::shared_ptr<const AnswerEnd> answer_end;        // of a search; nullptr: tokens alone end it
  std::unique_ptr<AnswerFormat> format;
  std::unique_ptr<KeyQuota::Lease> lease;  // nullptr: no quota
  std::vector<HttpHeader> headers;         // of the answer, and of a refusal
  // Of each choice of a chat; none: text stays as it is.
  std::function<std::unique_ptr<OutputParser>()> make_parser;
  std::string_view calls_read_for;    // AnswerWording::request_type; empty: none are read
  StopShield stop_shield;             // calls whose form is enforced: stop strings are of words
  std::vector<std::string> pins;      // of each prompt (cache_pins.h); empty: none is wanted
  std::optional<RequestTrace> trace;  // none: no span is sent
  // Who could go on with the stream elsewhere is told what he needs; none: nobody asks.
  std::optional<AnswerJournal> journal;
  double load_seconds = 0;  // that the request has waited for its model to be loaded
  bool unattended = false;  // made while no client waits: nobody could go on with it

  // Of an answer that is no refusal: x-cache-pin too names what is pinned.
  std::vector<HttpHeader> answer_headers() const;
};

// What an answer that is not streamed tells of a prompt, at most, in all its choices.
size_t told_prompt_bytes(const GenerationPlan& plan, size_t prompt);

// What a request for too long an answer can do.
inline constexpr std::string_view kLessOfAnAnswer =
    "set stream, or ask for fewer prompts, choices, tokens or log-probabilities";

class GenerationSession : public ExchangeObserver,
                          public std::enable_shared_from_this<GenerationSession> {
 public:
  // On the exchange's strand. Answers for good or bad, sooner or later.
  static void start(ServerState& state, GenerationPlan plan, std::shared_ptr<Exchange> exchange);
  ~GenerationSession() override;

  void on_peer_gone() override;
  void on_writable() override;

  // The server will not wait: ends the answer with an error that says so. Any thread.
  void cut();
  // The server stops: cancels in the engine and lets the exchange go. REQUIRES: the strand is dead.
  void abandon();

 private:
  struct Choice {
    explicit Choice(ChoiceStream choice_stream) : stream(std::move(choice_stream)) {}
    RequestId request;   // of the engine, where all choices of a prompt are one
    int32_t number = 0;  // within it
    ChoiceStream stream;
    std::vector<TokenId> begun;  // its tokens that were made elsewhere
    ChoiceDelta ready;           // not yet sent; the whole answer when not streaming
    bool opened = false;
    int64_t generated = 0;
    double last_time = -1;
  };
  struct Prompt {
    bool admitted = false;                // left the queue
    bool started = false;                 // has a first result
    std::vector<TokenLogprobs> logprobs;  // of tokens 1.., with echo
  };

  GenerationSession(ServerState& state, GenerationPlan plan, std::shared_ptr<Exchange> exchange);

  void open_arrivals();
  Status submit();
  Status submit(size_t prompt, int32_t first_choice, int32_t choices);
  void replay();
  bool waits_in_queue() const;
  void watch_queue(double seconds, double from_now);
  void open_stream();
  void write(std::string_view bytes);
  void write_out();
  void ping_after(double seconds);
  void pump();
  void handle(Arrival arrival);
  bool keep(const Arrival& arrival, bool begins_prompt);
  void note_times(Prompt& prompt, Choice& choice, const Arrival& arrival);
  int32_t take(Arrival arrival);
  void tell(size_t prompt);
  bool prompt_scored(size_t prompt) const;
  void deliver(size_t choice_index);
  void prepend_echo(size_t prompt, ChoiceDelta& delta) const;
  void finish();
  void fail(int http_status, std::string_view message);
  void cancel_all();
  void end(FinishReason reason);
  void end_refused(int http_status);
  RequestTimes close(FinishReason reason);
  Usage usage() const;
  RequestTimes request_times() const;
  size_t choices_per_prompt() const { return static_cast<size_t>(plan_.settings.sampling.n); }
  Choice& choice_of(size_t prompt, int32_t number) {
    return choices_[prompt * choices_per_prompt() + static_cast<size_t>(number)];
  }

  ServerState& state_;
  GenerationPlan plan_;
  const ReadyModel& model_;  // of the plan
  std::shared_ptr<Exchange> exchange_;
  const double arrival_time_;

  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;                // prompt-major: index = prompt * n + choice
  std::shared_ptr<AnswerBudget::Lease> kept_;  // of what is not streamed
  size_t finished_ = 0;
  bool streaming_ = false;  // the stream's head is out
  bool begun_ = false;      // and what stands in front of its events
  bool done_ = false;
  std::string out_;  // events of arrivals that are being worked off: one write for all of them
  double written_time_ = -1;   // of the stream's last bytes
  double admitted_time_ = -1;  // the first prompt's
  double left_queue_time_;     // the last one's so far; before: of the arrival
  double first_token_time_ = -1;
  std::vector<int64_t> prompt_lengths_;  // by prompt, tokens
  int64_t prompt_tokens_ = 0;
  int64_t generated_ = 0;
  int64_t reasoning_ = 0;  // of them
  int64_t cached_tokens_ = 0;
  const std::shared_ptr<SessionProgress> progress_ = std::make_shared<SessionProgress>();

  std::shared_ptr<ArrivalQueue> arrivals_;  // shared with the engine's sinks
};

}  // namespace headrace
