#include "server/generation_session.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include <fmt/format.h>

#include "base/log.h"
#include "server/error_response.h"
#include "text/utf8.h"

namespace headrace {
namespace {

constexpr size_t kWriteBytes = 16 << 10;    // of events that are written together
constexpr double kPingSlackSeconds = 0.01;  // behind a bound of the queue's, which may be as long

void add_headers(std::vector<HttpHeader> headers, HttpResponse& response) {
  std::move(headers.begin(), headers.end(), std::back_inserter(response.headers));
}

}  // namespace

size_t told_prompt_bytes(const GenerationPlan& plan, size_t prompt) {
  const SamplingParams& sampling = plan.settings.sampling;
  if (plan.echo.empty() && sampling.prompt_logprobs < 0) return 0;
  return plan.prompts[prompt].size() * static_cast<size_t>(sampling.n) *
         answer_token_bytes(sampling.prompt_logprobs);
}

std::vector<HttpHeader> GenerationPlan::answer_headers() const {
  std::vector<HttpHeader> all = headers;
  std::string names;
  for (const std::string& pin : pins) {
    if (pin.empty()) continue;
    if (!names.empty()) names += ", ";
    names += pin;
  }
  if (!names.empty()) all.push_back({"x-cache-pin", std::move(names)});
  return all;
}

void GenerationSession::start(ServerState& state, GenerationPlan plan,
                              std::shared_ptr<Exchange> exchange) {
  std::shared_ptr<GenerationSession> session(
      new GenerationSession(state, std::move(plan), std::move(exchange)));
  session->progress_->tenant = session->plan_.settings.tenant;
  if (session->plan_.adapter) session->progress_->adapter = session->plan_.adapter->key();
  state.sessions.add(session, session->progress_);
  session->open_arrivals();
  session->exchange_->observe(session);
  session->replay();
  if (session->done_) return;  // the answer had ended where it was begun
  const Status status = session->submit();
  if (!status.ok()) {
    session->cancel_all();
    HttpResponse refusal = error_response(status);
    if (status.code() == StatusCode::kExhausted) {
      refusal =
          too_many_requests(status.message(), session->model_.served.engine->retry_after_seconds());
    }
    add_headers(session->plan_.headers, refusal);
    session->end_refused(refusal.status);
    session->exchange_->respond(std::move(refusal));
    return;
  }
  session->write_out();  // what is told again: not before the engine has taken the rest
  const double queue_seconds = session->plan_.settings.tier == ServiceTier::kFlex
                                   ? state.limits.flex_queue_seconds_max
                                   : state.limits.queue_seconds_max;
  if (queue_seconds > 0) session->watch_queue(queue_seconds, queue_seconds);
  const double period = state.limits.ping_seconds;
  if (session->plan_.settings.stream && period > 0) session->ping_after(period + kPingSlackSeconds);
}

GenerationSession::GenerationSession(ServerState& state, GenerationPlan plan,
                                     std::shared_ptr<Exchange> exchange)
    : state_(state),
      plan_(std::move(plan)),
      model_(*plan_.model),
      exchange_(std::move(exchange)),
      arrival_time_(state.clock.now_seconds()),
      written_time_(arrival_time_),
      left_queue_time_(arrival_time_) {
  const GenerationSettings& settings = plan_.settings;
  prompts_.resize(plan_.prompts.size());
  for (size_t i = 0; i < prompts_.size(); ++i) {
    for (size_t c = 0; c < choices_per_prompt(); ++c) {
      ChoiceStreamOptions options;
      options.text = {settings.skip_special, settings.stops, settings.include_stop};
      if (!plan_.echo.empty()) options.prompt_chars = count_code_points(plan_.echo[i]);
      if (plan_.make_parser) {
        options.parser = plan_.make_parser();
        options.text.kept = model_.output_marks;
        options.text.shield = plan_.stop_shield;
      }
      choices_.emplace_back(ChoiceStream(model_.served.tokenizer, std::move(options)));
    }
    prompt_lengths_.push_back(static_cast<int64_t>(plan_.prompts[i].size()));
    prompt_tokens_ += prompt_lengths_.back();
  }
  if (!settings.stream) kept_ = state.answer_budget.begin();
  progress_->model = &model_;
  progress_->prompt_tokens = prompt_tokens_;
  progress_->generated_max = static_cast<int64_t>(choices_.size()) * settings.sampling.max_tokens;
}

GenerationSession::~GenerationSession() {
  try {
    if (!done_) on_peer_gone();
  } catch (const std::exception& error) {
    log_error("an answer that nobody waits for was not cancelled: {}", error.what());
  }
}

void GenerationSession::open_arrivals() {
  // Whole answers are bounded by max_tokens and worked off at once; a stream may have to wait.
  const size_t tokens_max = plan_.settings.stream ? state_.limits.pending_tokens_max : SIZE_MAX;
  // Made once, put with every step.
  auto wake =
      std::make_shared<const PostBox::Task>([exchange = exchange_, weak = weak_from_this()] {
        exchange->dispatch([weak] {
          if (const auto self = weak.lock()) self->pump();
        });
      });
  arrivals_ = std::make_shared<ArrivalQueue>(
      tokens_max, [box = &state_.post_box, wake = std::move(wake)] { box->put(wake); });
}

// What was told before is taken in silently, but for the last of it where it may not have arrived.
void GenerationSession::replay() {
  if (!plan_.journal || !plan_.journal->goes_on) return;
  std::vector<Arrival> begun = std::move(plan_.journal->begun);
  for (size_t i = 0; i < begun.size(); ++i) {
    const bool again = plan_.journal->resend_last && i + 1 == begun.size();
    const Arrival& arrival = begun[i];
    const size_t prompt = arrival.prompt;
    if (!std::exchange(prompts_[prompt].started, true)) {
      const auto length = static_cast<int64_t>(plan_.prompts[prompt].size());
      cached_tokens_ += std::min<int64_t>(arrival.emission.cached_tokens, length);
    }
    Choice& choice = choice_of(prompt, arrival.emission.choice);
    for (const TokenId token : arrival.emission.tokens) choice.begun.push_back(token);
    (void)take(std::move(begun[i]));
    tell(prompt);
    if (!again) out_.clear();
  }
  progress_->cached_tokens = cached_tokens_;
  if (finished_ == choices_.size()) finish();
}

Status GenerationSession::submit() {
  const auto n = static_cast<int32_t>(choices_per_prompt());
  const bool goes_on = plan_.journal && plan_.journal->goes_on;
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    if (!goes_on) {
      HR_RETURN_IF_ERROR(submit(prompt, 0, n));
      continue;
    }
    // Each goes on from its own tokens; of the prompt they find each other's pages.
    for (int32_t choice = 0; choice < n; ++choice) {
      if (choice_of(prompt, choice).stream.finished()) continue;
      HR_RETURN_IF_ERROR(submit(prompt, choice, 1));
    }
  }
  plan_.adapter.reset();  // the requests have it
  return ok_status();
}

Status GenerationSession::submit(size_t prompt, int32_t first_choice, int32_t choices) {
  Engine& engine = *model_.served.engine;
  Request request;
  request.id = engine.next_request_id();
  request.prompt = plan_.prompts[prompt];
  request.sampling = plan_.settings.sampling;
  request.sampling.n = choices;
  if (plan_.journal) request.sampling.seed = plan_.journal->head.seeds[prompt];
  request.priority = plan_.settings.priority;
  request.slo_class = plan_.settings.slo_class;
  request.background = plan_.settings.tier == ServiceTier::kFlex;
  request.tenant = plan_.settings.tenant;
  request.cache_salt = plan_.settings.cache_salt;
  request.constraint = plan_.constraint;
  request.adapter_weights = plan_.adapter;
  request.answered = std::move(choice_of(prompt, first_choice).begun);
  request.first_choice = first_choice;
  request.beams = plan_.settings.beams;
  request.answer_end = plan_.answer_end;
  const RequestId id = request.id;
  HR_RETURN_IF_ERROR(engine.submit(
      std::move(request), [queue = arrivals_, prompt, first_choice](const Emission& emission) {
        queue->push(prompt, first_choice, emission);
      }));
  for (int32_t i = 0; i < choices; ++i) {
    Choice& choice = choice_of(prompt, first_choice + i);
    choice.request = id;
    choice.number = i;
  }
  return ok_status();
}

// A prompt of it has been touched by no step; one whose answers were made elsewhere needs none.
bool GenerationSession::waits_in_queue() const {
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!prompts_[i / choices_per_prompt()].admitted && !choices_[i].stream.finished()) return true;
  }
  return false;
}

// Refuses late rather than never: a request that no step has touched in time gets a 503, and so
// does one of several prompts of which none has left the queue for so long, while others wait in
// it.
void GenerationSession::watch_queue(double seconds, double from_now) {
  exchange_->call_after(from_now, [weak = weak_from_this(), seconds] {
    const auto self = weak.lock();
    if (!self || self->done_ || !self->waits_in_queue()) return;
    const double waited = self->state_.clock.now_seconds() - self->left_queue_time_;
    if (self->admitted_time_ >= 0 && waited < seconds) {
      return self->watch_queue(seconds, seconds - waited + kPingSlackSeconds);
    }
    self->fail(503, fmt::format("the request waited {} s in the queue, which is the most: send it "
                                "again later",
                                seconds));
  });
}

// The head leaves with the first step that works on the request. In the queue, which it may leave
// by a refusal, its answer still has a status to choose, unless it waits longer than proxies do.
void GenerationSession::open_stream() {
  if (std::exchange(streaming_, true)) return;
  HttpResponse head;
  head.content_type = plan_.format->content_type();
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  add_headers(plan_.answer_headers(), head);
  exchange_->begin_stream(std::move(head));
  if (plan_.journal && !plan_.journal->goes_on) {
    std::string line;
    append_journal_head(line, plan_.journal->head);
    exchange_->write(line);
  }
  written_time_ = state_.clock.now_seconds();
}

void GenerationSession::write(std::string_view bytes) {
  exchange_->write(bytes);
  written_time_ = state_.clock.now_seconds();
}

void GenerationSession::write_out() {
  if (done_ || out_.empty()) return;
  open_stream();
  write(out_);
  out_.clear();
}

// Looks in `seconds` whether the stream was silent for ping_seconds, and so on until its end.
void GenerationSession::ping_after(double seconds) {
  exchange_->call_after(seconds, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->done_) return;
    const double period = self->state_.limits.ping_seconds;
    const double silent = self->state_.clock.now_seconds() - self->written_time_;
    if (silent < period) return self->ping_after(period - silent + kPingSlackSeconds);
    const std::string_view ping = self->plan_.format->ping();
    if (!ping.empty()) self->open_stream();
    if (!ping.empty() && !self->exchange_->over_unsent_limit()) self->write(ping);
    self->ping_after(period);
  });
}

void GenerationSession::on_writable() { pump(); }

// Works off what has arrived, unless the peer is behind with reading.
void GenerationSession::pump() {
  if (done_) return;
  if (arrivals_->begin_take()) return fail(503, "the client reads too slowly");
  while (!done_ && !exchange_->over_unsent_limit()) {
    std::optional<Arrival> arrival = arrivals_->take();
    if (!arrival) break;
    handle(std::move(*arrival));
    if (out_.size() >= kWriteBytes) write_out();
  }
  write_out();
}

void GenerationSession::handle(Arrival arrival) {
  Emission& emission = arrival.emission;
  const size_t prompt_index = arrival.prompt;
  Prompt& prompt = prompts_[prompt_index];
  Choice& choice = choice_of(prompt_index, emission.choice);
  if (emission.admitted) {
    prompt.admitted = true;
    progress_->admitted = true;
    if (admitted_time_ < 0) admitted_time_ = arrival.time;
    left_queue_time_ = state_.clock.now_seconds();
    model_.metrics->on_queue_left(arrival.time - arrival_time_);
    if (plan_.settings.stream) open_stream();
    return;
  }
  const bool begins = !prompt.started;
  note_times(prompt, choice, arrival);
  if (emission.finish == FinishReason::kFault) {
    const Status health = model_.health();
    const bool failed = health.code() == StatusCode::kInternal;
    return fail(500, failed ? health.message() : "the model gave no valid output");
  }
  if (emission.finish == FinishReason::kAbort) return fail(503, "the request was aborted");

  if (kept_ && !keep(arrival, begins)) return;
  if (plan_.journal) append_journal_arrival(out_, arrival);
  const bool engine_finished = emission.finish != FinishReason::kNone;
  const bool was_finished = choice.stream.finished();
  const int32_t generated = take(std::move(arrival));
  if (plan_.lease) plan_.lease->spend(generated);
  model_.metrics->on_generation_tokens(generated);
  if (choice.stream.finished() && !was_finished) {
    model_.metrics->on_choice_finished(choice.ready.finish);
    if (!plan_.calls_read_for.empty()) {
      model_.metrics->on_calls_read(plan_.calls_read_for, plan_.settings.stream,
                                    choice.ready.called);
    }
    if (!engine_finished) model_.served.engine->cancel_choice(choice.request, choice.number);
  }
  tell(prompt_index);
  if (finished_ == choices_.size()) finish();
}

// Charges what an arrival adds to an answer that is not streamed. False: there is no room for it,
// and the answer has ended with an error.
bool GenerationSession::keep(const Arrival& arrival, bool begins_prompt) {
  size_t bytes =
      arrival.emission.tokens.size() * answer_token_bytes(plan_.settings.sampling.logprobs);
  if (begins_prompt) bytes += told_prompt_bytes(plan_, arrival.prompt);
  const size_t most = state_.limits.answer_bytes_max;
  if (kept_->bytes() + bytes > most) {
    fail(400, fmt::format("the answer is longer than the {} MiB that one which is not streamed may "
                          "have (--max-answer-bytes): {}",
                          most >> 20, kLessOfAnAnswer));
    return false;
  }
  if (kept_->grow(bytes)) return true;
  fail(503, fmt::format("answers of other requests take all the memory that there is for those "
                        "which are not streamed: send the request again later, or {}",
                        kLessOfAnAnswer));
  return false;
}

// What an arrival adds to its choice; how many tokens it had.
int32_t GenerationSession::take(Arrival arrival) {
  Emission& emission = arrival.emission;
  Prompt& prompt = prompts_[arrival.prompt];
  Choice& choice = choice_of(arrival.prompt, emission.choice);
  std::move(emission.prompt_logprobs.begin(), emission.prompt_logprobs.end(),
            std::back_inserter(prompt.logprobs));
  const bool was_finished = choice.stream.finished();
  ChoiceDelta delta = choice.stream.take(std::move(emission));
  const int32_t generated = delta.generated;
  generated_ += generated;
  choice.generated += generated;
  progress_->generated = generated_;
  reasoning_ += delta.reasoning;
  choice.ready.append(std::move(delta));
  if (choice.stream.finished() && !was_finished) ++finished_;
  return generated;
}

void GenerationSession::tell(size_t prompt) {
  if (!prompt_scored(prompt)) return;
  for (size_t c = 0; c < choices_per_prompt(); ++c) deliver(prompt * choices_per_prompt() + c);
}

void GenerationSession::note_times(Prompt& prompt, Choice& choice, const Arrival& arrival) {
  if (!prompt.started) {
    prompt.started = true;
    if (!plan_.pins.empty()) {
      model_.pins->place(plan_.pins[arrival.prompt], plan_.settings.cache_salt,
                         plan_.prompts[arrival.prompt]);
    }
    cached_tokens_ += arrival.emission.cached_tokens;
    progress_->cached_tokens = cached_tokens_;
    model_.metrics->on_prompt_tokens(static_cast<int64_t>(plan_.prompts[arrival.prompt].size()),
                                     arrival.emission.cached_tokens);
  }
  if (arrival.emission.tokens.empty()) return;
  if (first_token_time_ < 0) {
    first_token_time_ = arrival.time;
    model_.metrics->on_first_token(arrival.time - arrival_time_);
  }
  if (choice.last_time >= 0) model_.metrics->on_inter_token(arrival.time - choice.last_time);
  choice.last_time = arrival.time;
}

// With echo, text may leave only when the log-probabilities of the prompt before it are known.
bool GenerationSession::prompt_scored(size_t prompt) const {
  if (plan_.settings.sampling.prompt_logprobs < 0) return true;
  return prompts_[prompt].logprobs.size() + 1 >= plan_.prompts[prompt].size();
}

void GenerationSession::deliver(size_t choice_index) {
  Choice& choice = choices_[choice_index];
  const bool has_result = choice.ready.generated > 0 || choice.ready.finish != FinishReason::kNone;
  if (!choice.opened && !has_result) return;
  const bool opens = !choice.opened;
  if (opens && !plan_.echo.empty()) prepend_echo(choice_index / choices_per_prompt(), choice.ready);
  choice.opened = true;
  if (!plan_.settings.stream) return;
  if (opens && !std::exchange(begun_, true)) plan_.format->append_begin(out_, usage());
  std::optional<Usage> told;
  if (plan_.settings.continuous_usage) told = usage();
  plan_.format->append_events(out_, static_cast<int32_t>(choice_index), opens, choice.ready,
                              told ? &*told : nullptr);
  choice.ready = {};
}

void GenerationSession::prepend_echo(size_t prompt, ChoiceDelta& delta) const {
  const Tokenizer* tokenizer = model_.served.tokenizer;
  const std::vector<TokenId>& ids = plan_.prompts[prompt];
  const std::vector<TokenLogprobs>& logprobs = prompts_[prompt].logprobs;
  ChoiceDelta echoed;
  echoed.text = plan_.echo[prompt];
  const size_t chars_max = count_code_points(echoed.text);
  size_t chars = 0;  // that begin before the token
  for (size_t i = 0; i < ids.size(); ++i) {
    TokenRecord record{ids[i], std::min(chars, chars_max), {}};
    if (i > 0 && i - 1 < logprobs.size()) record.logprobs = logprobs[i - 1];
    echoed.tokens.push_back(std::move(record));
    const std::string bytes = tokenizer ? tokenizer->token_bytes(ids[i]) : std::string();
    const bool added = i == 0 && tokenizer && tokenizer->is_control(ids[0]) &&
                       echoed.text.compare(0, bytes.size(), bytes) != 0;  // BOS: not in the text
    if (!added) chars += count_character_starts(bytes);
  }
  echoed.echoed = ids.size();
  echoed.append(std::move(delta));
  delta = std::move(echoed);
}

// All is settled before the client can know that it is the end: it may ask at once, or send its
// next request.
void GenerationSession::finish() {
  if (plan_.settings.stream) {
    plan_.format->append_end(out_, usage(), plan_.settings.include_usage);
    open_stream();
    end(FinishReason::kNone);
    return exchange_->end_stream(out_);
  }
  std::vector<ChoiceDelta> answers;
  for (size_t i = 0; i < choices_.size(); ++i) {
    answers.push_back(std::move(choices_[i].ready));
    if (!plan_.settings.tell_prompt_logprobs) continue;
    answers.back().prompt_logprobs = prompts_[i / choices_per_prompt()].logprobs;
  }
  HttpResponse response;
  response.body = write_json(plan_.format->whole(answers, usage()));
  kept_->set(response.body.size());
  response.held = std::move(kept_);
  response.headers = plan_.answer_headers();
  end(FinishReason::kNone);
  exchange_->respond(std::move(response));
}

// Before the first byte an error is an HTTP status; in a stream it is an event, and no clean end.
void GenerationSession::fail(int http_status, std::string_view message) {
  cancel_all();
  if (streaming_) {
    if (plan_.journal) append_journal_loss(out_, message);
    plan_.format->append_error(out_, http_status, message);
  }
  if (http_status == 500) {
    end(FinishReason::kFault);
  } else if (admitted_time_ < 0) {
    end_refused(http_status);
  } else {
    end(FinishReason::kAbort);
  }
  if (streaming_) return exchange_->end_stream(out_);
  HttpResponse response = error_response(http_status, message);
  add_headers(plan_.headers, response);
  exchange_->respond(std::move(response));
}

Usage GenerationSession::usage() const {
  Usage usage;
  usage.prompt_tokens = prompt_tokens_;
  usage.completion_tokens = generated_;
  usage.cached_tokens = cached_tokens_;
  if (plan_.make_parser && model_.output.reasoning) usage.reasoning_tokens = reasoning_;
  const double now = state_.clock.now_seconds();
  const double admitted = admitted_time_ < 0 ? now : admitted_time_;
  const double first = first_token_time_ < 0 ? now : first_token_time_;
  usage.load_seconds = plan_.load_seconds;
  usage.queue_seconds = admitted - arrival_time_;
  usage.prompt_seconds = std::max(0.0, first - admitted);
  usage.answer_seconds = std::max(0.0, now - first);
  return usage;
}

void GenerationSession::on_peer_gone() {
  if (done_) return;
  cancel_all();
  end(FinishReason::kAbort);
}

void GenerationSession::cancel_all() {
  RequestId last;
  for (const Choice& choice : choices_) {
    if (choice.request == std::exchange(last, choice.request)) continue;
    model_.served.engine->cancel(choice.request);
  }
}

// kNone: every choice has been counted with its own reason.
void GenerationSession::end(FinishReason reason) {
  const RequestTimes times = close(reason);
  if (reason != FinishReason::kNone) return model_.metrics->on_choice_finished(reason);
  model_.metrics->on_request_finished(times);
}

// Of a request that the engine never took: nothing of it has finished.
void GenerationSession::end_refused(int http_status) {
  close(FinishReason::kAbort);
  model_.metrics->on_refused(http_status);
}

RequestTimes GenerationSession::close(FinishReason reason) {
  done_ = true;
  arrivals_->close();
  plan_.lease.reset();
  for (const std::string& pin : plan_.pins) model_.pins->give_up(pin);
  state_.sessions.remove(this);
  const RequestTimes times = request_times();
  if (plan_.trace) {
    state_.traces->add(request_span(*plan_.trace, model_.served.names.front(),
                                    plan_.settings.sampling, times, reason));
  }
  return times;
}

RequestTimes GenerationSession::request_times() const {
  const Usage spent = usage();
  RequestTimes times;
  times.first_token = first_token_time_ < 0 ? -1 : first_token_time_ - arrival_time_;
  times.total = state_.clock.now_seconds() - arrival_time_;
  times.queue = spent.queue_seconds;
  times.prompt = spent.prompt_seconds;
  times.answer = spent.answer_seconds;
  times.prompt_tokens = prompt_tokens_;
  times.prompt_tokens_computed = prompt_tokens_ - cached_tokens_;
  times.generation_tokens = generated_;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const int64_t generated = choices_[i].generated;
    const size_t prompt = i / choices_per_prompt();
    times.longest_answer = std::max(times.longest_answer, generated);
    times.longest_sequence = std::max(times.longest_sequence, prompt_lengths_[prompt] + generated);
  }
  times.choices = static_cast<int32_t>(choices_.size());
  times.max_tokens = plan_.settings.sampling.max_tokens;
  return times;
}

void GenerationSession::cut() {
  exchange_->post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && !self->done_) self->fail(503, "the server shuts down: send the request again");
  });
}

void GenerationSession::abandon() {
  if (!std::exchange(done_, true)) cancel_all();
  arrivals_->close();
  plan_.lease.reset();
  exchange_.reset();
}

}  // namespace headrace
