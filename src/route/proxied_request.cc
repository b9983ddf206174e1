#include "route/proxied_request.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "route/answer_tokens.h"
#include "route/json_members.h"
#include "route/last_event.h"
#include "server/answer_journal.h"
#include "server/header_text.h"

namespace headrace {
namespace {

constexpr int64_t kWholeBytesMax = 8 << 20;  // larger answers pass as they come
constexpr double kLookStep = 0.25;
constexpr size_t kFirstEventBytesMax = 4096;  // in which a stream says what id it has

// Not passed on: they are this connection's, or the router says them itself.
bool is_dropped(std::string_view name, bool has_worker_key) {
  if (has_worker_key && (name == "authorization" || name == "x-api-key")) return true;
  return is_hop_header(name) || name == "host" || name == "expect" || name == "accept-encoding" ||
         name == "origin" || name == "x-request-id" || name == "forwarded" || name == "x-real-ip" ||
         name.starts_with("x-headrace-") || name.starts_with("sec-fetch-");
}

std::string host_of(const HttpTarget& target) {
  const bool ip6 = target.host.find(':') != target.host.npos;
  return fmt::format("{}{}{}:{}", ip6 ? "[" : "", target.host, ip6 ? "]" : "", target.port);
}

// In seconds; 0: it says none, or a date.
double retry_after_of(const WorkerAnswer& answer) {
  for (const HttpHeader& header : answer.headers()) {
    if (to_lower(header.name) == "retry-after") return json_integer(header.value).value_or(0);
  }
  return 0;
}

}  // namespace

ProxiedRequest::ProxiedRequest(RouteContext& context, HttpRequest request,
                               std::shared_ptr<Exchange> exchange,
                               std::unique_ptr<KeyQuota::Lease> quota)
    : context_(context),
      exchange_(std::move(exchange)),
      quota_(std::move(quota)),
      request_(std::move(request)),
      facts_(request_),
      attempts_(context.options.attempts, facts_.may_be_repeated()),
      relay_(exchange_, error_form_of(request_.path)),
      began_(context.clock.now_seconds()) {}

void ProxiedRequest::start() {
  context_.metrics.requests.fetch_add(1, std::memory_order_relaxed);
  if (facts_.reserved) {
    over_ = true;
    return relay_.respond(error_response(400, "headrace_resume is between router and workers"));
  }
  exchange_->observe(shared_from_this());
  choose_model();
  body_ = std::make_shared<const std::string>(std::move(request_.body));
  send_somewhere();
  look_at_silence();
}

// An alias becomes the name of the cheapest model that takes the request.
void ProxiedRequest::choose_model() {
  if (facts_.model.empty()) return;
  const auto models = context_.aliases.models_for(
      facts_, [&](std::string_view model) { return context_.table.context_of(model); });
  if (models.empty()) return;
  request_.body = with_model(request_.body, facts_, models.front());
  facts_ = RequestFacts(request_);
}

// --- Sending -------------------------------------------------------------------------------------

void ProxiedRequest::send_somewhere() {
  if (over_) return;
  const double begin = context_.clock.now_seconds();
  facts_.resumes = journal_ && journal_->has_sent();
  auto lease = context_.table.choose(facts_, attempts_.tried());
  context_.metrics.decision.add(context_.clock.now_seconds() - begin);
  if (lease) return send_to(*std::move(lease));
  step(attempts_.on_worker_missing(
      {.up = context_.table.anybody_up(), .away = context_.table.anybody_away()}, answer_so_far()));
}

void ProxiedRequest::send_to(WorkerLease lease) {
  resuming_ = facts_.resumes;
  streaming_ = false;
  std::shared_ptr<const std::string> body = body_;
  if (resuming_) {
    body = std::make_shared<const std::string>(
        with_first_member(*body_, journal_->resume_member(attempts_.inexact())));
    journal_->begin_resumed();
  } else if (journal_) {
    journal_->begin_again();
  }
  std::string head = head_for(lease.target(), body->size());
  sent_at_ = context_.clock.now_seconds();
  tokens_ahead_ = lease.tokens_ahead();
  attempt_ = context_.attempts.make(
      std::move(lease), exchange_,
      WorkerAttempt::Callbacks{
          .on_bytes = [self = shared_from_this()] { self->on_bytes(); },
          .on_failed = [self = shared_from_this()](
                           AttemptFailure failure,
                           const std::string& why) { self->on_failed(failure, why); }});
  context_.metrics.before.add(context_.clock.now_seconds() - began_);
  attempt_->start(std::move(head), std::move(body), facts_.may_be_repeated());
}

void ProxiedRequest::wait_for_worker() {
  context_.metrics.waited.fetch_add(1, std::memory_order_relaxed);
  exchange_->call_after(attempts_.pause_seconds(),
                        [self = shared_from_this()] { self->send_somewhere(); });
}

std::string ProxiedRequest::head_for(const HttpTarget& target, size_t body_bytes) const {
  const std::string& key = context_.options.worker_key;
  std::string head = fmt::format(
      "{} {}{}{} HTTP/1.1\r\nHost: {}\r\n",
      request_.method == "HEAD" ? "GET" : std::string_view(request_.method), request_.path,
      request_.query.empty() ? "" : "?", request_.query, host_of(target));
  const auto add = [&](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  for (const HttpHeader& header : request_.headers) {
    if (!is_dropped(header.name, !key.empty())) add(header.name, header.value);
  }
  if (!key.empty()) add("Authorization", "Bearer " + key);
  add("X-Request-Id", request_.id);
  std::string routers(request_.header("x-headrace-router"));
  add(kRouterHeader,
      routers.empty() ? context_.options.router_id : routers + ", " + context_.options.router_id);
  if (facts_.streams) add(kJournalHeader, "1");
  if (body_bytes > 0 || request_.method != "GET") add("Content-Length", std::to_string(body_bytes));
  return head += "\r\n";
}

// --- The answer ----------------------------------------------------------------------------------

// What is not handed on before it is there, because it may yet be another worker's turn.
bool ProxiedRequest::is_whole(const WorkerAnswer& answer) const {
  if (answer.status() >= 400) return true;
  const std::string& type = answer.content_type();
  const bool events = type.starts_with("text/event-stream") || type.find("ndjson") != type.npos;
  return !resuming_ && !events && answer.content_length() >= 0 &&
         answer.content_length() <= kWholeBytesMax;
}

void ProxiedRequest::on_bytes() {
  WorkerAnswer& answer = attempt_->answer();
  if (!answer.has_head()) return attempt_->read();
  if (!streaming_ && is_whole(answer)) {
    if (answer.complete()) return on_whole_answer();
    if (answer.body().size() <= kWholeBytesMax) return attempt_->read();
    return on_failed(AttemptFailure::kBroken, "an error without end");
  }
  if (!streaming_) {
    streaming_ = true;
    context_.table.on_heard(attempt_->worker());
    const bool lines = answer.content_type().find("ndjson") != std::string::npos;
    framing_ = lines ? StreamFraming::kLines : StreamFraming::kEvents;
    if (!journal_)
      journal_.emplace(framing_, context_.options.journal_bytes_max, &context_.journals);
  }
  on_stream_bytes();
}

void ProxiedRequest::on_whole_answer() {
  WorkerAnswer& answer = attempt_->answer();
  const int status = answer.status(), worker = attempt_->worker();
  std::string body = std::move(answer.body());
  context_.table.on_answer(worker, status);
  const bool refused = status == 429 || status == 503 || status == 508;
  const bool fault = status == 500 && facts_.kind == RouteKind::kCompute;
  const bool elsewhere = status == 404 && facts_.kind == RouteKind::kOwned;
  if (resuming_ && !refused) {
    return on_failed(status == 409   ? AttemptFailure::kNotEqual
                     : status == 413 ? AttemptFailure::kTooLong
                                     : AttemptFailure::kErrorEvent,
                     fmt::format("it does not resume the stream: {}", status));
  }
  if (refused || fault || elsewhere) {
    attempts_.on_retry_after(retry_after_of(answer));
    refusal_ = response_of(answer, std::move(body));
    return on_failed(refused ? AttemptFailure::kBusy
                     : fault ? AttemptFailure::kServerError
                             : AttemptFailure::kUnknownHere,
                     fmt::format("it answers {}", status));
  }
  if (facts_.kind == RouteKind::kHome || facts_.kind == RouteKind::kOwned ||
      request_.path == "/v1/responses") {
    remember_owner(body);
  }
  if (status < 300) spend(generated_tokens(body));
  quota_.reset();  // before the client can know, who may send its next request
  relay_.respond(response_of(answer, std::move(body)));
  end_well();
}

void ProxiedRequest::on_stream_bytes() {
  WorkerAnswer& answer = attempt_->answer();
  std::string out;
  const size_t arrivals = journal_->arrivals();
  const bool journalled = facts_.streams || resuming_;
  Status status, ending;
  if (journalled) {
    status = journal_->feed(answer.body(), out);
    if (answer.complete() && status.ok()) ending = journal_->end(out);
  } else {
    out = std::move(answer.body());
  }
  answer.body().clear();
  if (journal_->arrivals() > arrivals) attempts_.on_progress();
  if (!out.empty()) {
    if (const double ahead = std::exchange(tokens_ahead_, 0); ahead > 0 && !resuming_) {
      const double seconds = context_.clock.now_seconds() - sent_at_;
      context_.table.on_first_token(attempt_->worker(), seconds, ahead);
    }
    attempts_.on_answer_bytes();
    spend(events_in(out, framing_));
  }
  const bool well = answer.complete() && status.ok() && ending.ok() && !journal_->failed();
  // Before the client can know, as above: it does by the last event, and waits for nothing else.
  if (quota_ && (well || has_last_event(out, framing_, facts_.one_answer))) quota_.reset();
  if (!out.empty()) note_bytes(out);
  if (well) {
    relay_.begin(answer);
    relay_.end(out);
    context_.table.on_answer(attempt_->worker(), answer.status());
    return end_well();
  }
  if (!out.empty()) {
    relay_.begin(answer);
    relay_.write(out);
  }
  if (!status.ok()) return on_failed(AttemptFailure::kDifferent, status.message());
  if (journal_->failed()) {
    return on_failed(AttemptFailure::kErrorEvent, "it ended the stream with an error");
  }
  if (!ending.ok()) return on_failed(AttemptFailure::kBroken, ending.message());
  paused_ = exchange_->over_unsent_limit();
  if (!paused_) attempt_->read();
}

// What the first of them tells, and that they are there.
void ProxiedRequest::note_bytes(std::string_view bytes) {
  if (failed_at_ > 0) {
    context_.metrics.recovery.add(context_.clock.now_seconds() - std::exchange(failed_at_, 0));
  }
  if (!relay_.begun() && request_.path == "/v1/responses") {
    const size_t brace = bytes.find('{');
    if (brace != bytes.npos && brace < kFirstEventBytesMax) remember_owner(bytes.substr(brace));
  }
}

void ProxiedRequest::end_well() {
  over_ = true;
  if (attempt_) attempt_->finish();
  attempt_.reset();
}

void ProxiedRequest::spend(int64_t tokens) {
  if (quota_ && facts_.output_tokens > 0) quota_->spend(tokens);
}

void ProxiedRequest::remember_owner(std::string_view body) {
  for (const std::string& id : ids_kept_by_worker(body)) {
    context_.table.remember_owner(id, attempt_->worker());
  }
}

// --- Failing -------------------------------------------------------------------------------------

RequestAttempts::Answer ProxiedRequest::answer_so_far() const {
  const bool begun = relay_.begun();
  const bool resumable = begun && journal_ && journal_->resumable() && takes_member(*body_);
  return {.begun = begun, .resumable = resumable};
}

void ProxiedRequest::on_failed(AttemptFailure failure, const std::string& why) {
  if (over_) return;
  const int worker = attempt_->worker();
  attempt_->abandon();
  attempt_.reset();
  failure_ = why;
  if (failed_at_ == 0) failed_at_ = context_.clock.now_seconds();
  const bool lost = failure == AttemptFailure::kNotSent || failure == AttemptFailure::kBroken ||
                    failure == AttemptFailure::kSilent;
  const bool drains = failure == AttemptFailure::kBusy && refusal_ && refusal_->status == 503;
  if (lost || drains) context_.table.on_lost(worker);  // until a poll is answered
  if (failure == AttemptFailure::kErrorEvent && streaming_) context_.table.on_answer(worker, 500);
  const NextStep next = attempts_.on_failure(worker, failure, answer_so_far());
  const bool again = next == NextStep::kSend || next == NextStep::kResume;
  const bool taken = failure != AttemptFailure::kBusy && failure != AttemptFailure::kNotSent;
  if (again) context_.table.count_retry(worker, next == NextStep::kResume && taken);
  log_debug("request {}: worker {} failed it: {}", request_.id, worker, why);
  step(next);
}

void ProxiedRequest::step(NextStep next) {
  switch (next) {
    case NextStep::kSend:
    case NextStep::kResume:
      return send_somewhere();
    case NextStep::kWait:
      return wait_for_worker();
    case NextStep::kPassOn:
      over_ = true;
      quota_.reset();
      if (refusal_->status == 404 && context_.table.anybody_away()) {
        return relay_.respond(error_response(
            503, "no worker that is up has it, and one that may have it is away: ask again later"));
      }
      return relay_.respond(*std::move(refusal_));
    case NextStep::kGiveUp:
      return give_up();
  }
}

void ProxiedRequest::give_up() {
  over_ = true;
  quota_.reset();
  context_.metrics.failed.fetch_add(1, std::memory_order_relaxed);
  const std::string message =
      failure_.empty() ? "no worker takes requests now: send it again later"
                       : "the workers that were asked failed the request: send it again later";
  log_warning("request {} is failed: {}", request_.id,
              failure_.empty() ? "no worker takes requests" : failure_);
  const std::string event = journal_ ? journal_->error_event() : std::string();
  relay_.fail(503, message, event, framing_);
}

// A worker that is stopped or cut off keeps its connections open: what tells is that nothing comes,
// neither here nor to a poll.
void ProxiedRequest::look_at_silence() {
  exchange_->call_after(kLookStep, [self = shared_from_this()] {
    if (self->over_) return;
    self->look_at_silence();
    const auto& attempt = self->attempt_;
    if (!attempt || self->paused_) return;
    const ProxyOptions& options = self->context_.options;
    const double silent = attempt->silent_seconds();
    if (!attempt->connected()) {
      if (silent > options.connect_seconds) {
        self->on_failed(AttemptFailure::kNotSent, "no connection in time");
      }
      return;
    }
    const bool heard =
        self->context_.table.heard_within(attempt->worker(), options.progress_seconds);
    const bool gone = silent > options.progress_seconds && !heard;
    // A worker may also have swallowed the request: then a stream's first byte never comes.
    const bool is_stream = self->streaming_ || self->facts_.streams;
    const bool stuck = is_stream && silent > options.silent_stream_seconds;
    if (gone || stuck) self->on_failed(AttemptFailure::kSilent, "nothing comes");
  });
}

void ProxiedRequest::on_peer_gone() {
  if (std::exchange(over_, true)) return;
  quota_.reset();
  context_.metrics.client_gone.fetch_add(1, std::memory_order_relaxed);
  if (attempt_) attempt_->abandon();
  attempt_.reset();
}

void ProxiedRequest::on_writable() {
  if (!std::exchange(paused_, false) || !attempt_) return;
  attempt_->read();
}

}  // namespace headrace
