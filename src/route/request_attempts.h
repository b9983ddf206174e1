// What is done when a worker fails a request: send it again, resume it, wait for a worker, or tell
// the client. A pure state machine of one request; whoever drives it has the sockets, and the
// simulation has none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "route/request_facts.h"

namespace headrace {

enum class AttemptFailure : uint8_t {
  kNotSent,      // no connection: nothing of the request has left
  kBroken,       // the connection broke, or the answer was none
  kSilent,       // no byte within the bound, and the worker is not heard otherwise
  kErrorEvent,   // the worker ended the stream with an error
  kServerError,  // 500: the worker's fault or the request's
  kBusy,         // 429, 503, 508: it was not taken
  kUnknownHere,  // 404 of what another worker may have
  kNotEqual,     // 409: its arithmetic is another's
  kTooLong,      // 413: the request with its journal is more than a worker takes
  kDifferent,    // a resumed stream did not go on as it began
};

enum class NextStep : uint8_t {
  kSend,    // to another worker, the request as it came
  kResume,  // to another worker, with the journal
  kWait,    // nobody is there: ask again soon
  kPassOn,  // what the last worker answered is the answer
  kGiveUp,  // an error
};

struct AttemptPolicy {
  double wait_seconds = 30;  // for a worker, when none is there or takes it; without progress
  int faults_max = 8;        // of one request without progress between them
  bool resume_inexact = false;
};

class RequestAttempts {
 public:
  RequestAttempts(const AttemptPolicy& policy, bool may_be_repeated)
      : policy_(policy), may_be_repeated_(may_be_repeated) {}

  // Workers that are not asked again in this round.
  const std::vector<int>& tried() const { return tried_; }
  bool inexact() const { return inexact_; }
  int faults() const { return faults_; }

  // The worker did what the request made it do: faults before do not count any more.
  void on_progress() { faults_ = 0; }
  // More of the answer came: waiting begins anew.
  void on_answer_bytes() { waited_ = backoff_ = 0; }
  // A busy worker's Retry-After.
  void on_retry_after(double seconds) { retry_after_ = std::clamp(seconds, 0.0, kPauseMax); }

  struct Answer {
    bool begun = false;      // the client has something of it
    bool resumable = false;  // and there is a journal
  };
  // `worker` failed. What to do, if there is another worker: whether there is one, ask for with
  // on_worker_missing().
  NextStep on_failure(int worker, AttemptFailure failure, Answer answer) {
    note(worker, failure);
    if (failure == AttemptFailure::kDifferent || failure == AttemptFailure::kTooLong) {
      return NextStep::kGiveUp;
    }
    if (answer.begun && !answer.resumable) return NextStep::kGiveUp;
    if (answer.begun) return faults_ > policy_.faults_max ? NextStep::kGiveUp : NextStep::kResume;
    const bool taken = failure != AttemptFailure::kNotSent && failure != AttemptFailure::kBusy &&
                       failure != AttemptFailure::kUnknownHere;
    if (taken && !may_be_repeated_) return NextStep::kGiveUp;
    if (faults_ <= policy_.faults_max) return NextStep::kSend;
    return erred_ ? NextStep::kPassOn : NextStep::kGiveUp;
  }

  struct Workers {
    bool up = false;    // somebody takes requests, who was tried
    bool away = false;  // somebody does not answer
  };
  // Nobody is there that was not tried. kWait: for pause_seconds(), which grow from round to round
  // of tries that failed, and end when they sum up to the policy's.
  NextStep on_worker_missing(Workers workers, Answer answer) {
    const bool anybody = workers.up;
    // What nobody of these has, or can do, may be with who is away.
    const bool final = !(unknown_ || erred_) || !workers.away;
    if (refused_ && anybody && !answer.begun && final) return NextStep::kPassOn;
    if (unequal_ && anybody && answer.begun) {
      if (!policy_.resume_inexact || inexact_) return NextStep::kGiveUp;
      inexact_ = true;
      tried_.clear();
      return NextStep::kResume;
    }
    // Who failed may try again, within faults_max, but not who found that it could not.
    if (anybody) tried_ = erring_;
    if (waited_ >= policy_.wait_seconds) {
      return refused_ && !answer.begun ? NextStep::kPassOn : NextStep::kGiveUp;
    }
    pause_ = kPauseMin;
    if (failed_) {
      backoff_ = std::clamp(2 * backoff_, kPauseMin, kPauseMax);
      pause_ = std::max(backoff_, retry_after_);
    }
    failed_ = false;
    retry_after_ = 0;
    waited_ += pause_;
    return NextStep::kWait;
  }
  double pause_seconds() const { return pause_; }

 private:
  static constexpr double kPauseMin = 0.05, kPauseMax = 2;

  void note(int worker, AttemptFailure failure) {
    failed_ = true;
    if (std::find(tried_.begin(), tried_.end(), worker) == tried_.end()) tried_.push_back(worker);
    const bool answered =
        failure == AttemptFailure::kBusy || failure == AttemptFailure::kUnknownHere;
    unknown_ = failure == AttemptFailure::kUnknownHere;
    erred_ = failure == AttemptFailure::kServerError;
    if (erred_) erring_.push_back(worker);
    refused_ = answered || erred_;
    unequal_ = unequal_ || failure == AttemptFailure::kNotEqual;
    const bool harmless =
        answered || failure == AttemptFailure::kNotEqual || failure == AttemptFailure::kNotSent;
    if (!harmless) ++faults_;
  }

  const AttemptPolicy policy_;
  const bool may_be_repeated_;
  std::vector<int> tried_;
  std::vector<int> erring_;  // that answered with an error of their own
  int faults_ = 0;
  bool refused_ = false;  // the last worker's answer could be passed on
  bool unknown_ = false;  // it was that it has no such thing
  bool erred_ = false;    // it was an error of its own
  bool unequal_ = false, inexact_ = false;
  bool failed_ = false;  // a try since the last pause
  double backoff_ = 0, retry_after_ = 0, pause_ = 0, waited_ = 0;
};

}  // namespace headrace
