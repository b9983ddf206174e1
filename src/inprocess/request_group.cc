#include "inprocess/request_group.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "apps/answer.h"
#include "base/check.h"
#include "base/clock.h"
#include "sched/request_limits.h"

namespace headrace {

// Filled by the engine thread. Bounded by the requests: an emission a step and choice.
struct RequestGroup::Mailbox {
  struct Mail {
    uint32_t request = 0;
    std::optional<Emission> emission = {};  // empty: the engine has dropped the request's sink
  };

  Mailbox() : event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    CHECK_MSG(event >= 0, "no file descriptor is left");
  }
  ~Mailbox() { close(event); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void put(Mail mail) {
    bool first = false;
    {
      std::lock_guard lock(mutex);
      first = mails.empty();
      mails.push_back(std::move(mail));
    }
    if (first) eventfd_write(event, 1);
  }
  std::vector<Mail> take_all() {
    eventfd_t count = 0;
    eventfd_read(event, &count);
    std::lock_guard lock(mutex);
    return std::exchange(mails, {});
  }

  const int event;  // counts from when there is mail until it is taken
  std::mutex mutex;
  std::vector<Mail> mails;
};

struct RequestGroup::Choice {
  Choice(const Tokenizer& tokenizer, const TextStreamOptions& options) : text(tokenizer, options) {}

  void finish(std::string_view reason) {
    news.finish_reason = reason;
    changed = finished = true;
  }

  TextStream text;
  ChoiceNews news;
  bool changed = false;
  bool finished = false;
};

struct RequestGroup::Running {
  RequestId id;
  std::vector<std::string> stops;
  std::vector<std::unique_ptr<Choice>> choices;
  std::vector<TokenLogprobs> prompt_logprobs;
  int32_t cached_tokens = 0;

  bool changed() const {
    return std::any_of(choices.begin(), choices.end(),
                       [](const auto& choice) { return choice->changed; });
  }
  bool finished() const {
    return std::all_of(choices.begin(), choices.end(),
                       [](const auto& choice) { return choice->finished; });
  }
};

RequestGroup::RequestGroup(std::shared_ptr<ModelStack> stack, NewsTime time)
    : stack_(std::move(stack)), time_(time), mailbox_(std::make_shared<Mailbox>()) {
  CHECK(stack_->tokenizer() != nullptr);
}

RequestGroup::~RequestGroup() { cancel_all(); }

Result<uint32_t> RequestGroup::submit(std::vector<TokenId> prompt, SamplingParams sampling,
                                      const TextStreamOptions& options,
                                      const std::optional<BeamOptions>& beams) {
  if (prompt.empty()) return invalid_argument("the prompt is empty", "prompt");
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  const bool names_no_length = sampling.max_tokens < 0;
  HR_ASSIGN_OR_RETURN(sampling.max_tokens, answer_tokens_max(prompt_tokens, sampling.max_tokens,
                                                             stack_->info().max_model_len));
  if (names_no_length && (sampling.n > 1 || beams)) {
    sampling.max_tokens =
        answer_tokens_max(stack_->engine().options().scheduler, prompt_tokens, sampling.n,
                          beams ? beams->width : 0, sampling.max_tokens);
  }
  auto running = std::make_unique<Running>();
  running->id = stack_->engine().next_request_id();
  running->stops = options.stops;
  for (int32_t i = 0; i < sampling.n; ++i) {
    running->choices.push_back(std::make_unique<Choice>(*stack_->tokenizer(), options));
    running->choices.back()->news.index = i;
  }
  // Held until the request is in the table: its first news may come before submit() returns.
  std::lock_guard lock(mutex_);
  const uint32_t number = next_request_++;
  Request request{.id = running->id,
                  .prompt = std::move(prompt),
                  .sampling = std::move(sampling),
                  .adapter_weights = stack_->adapter_of_all(),
                  .beams = beams};
  std::shared_ptr<void> closer(
      nullptr, [mailbox = mailbox_, number](void*) { mailbox->put({.request = number}); });
  HR_RETURN_IF_ERROR(stack_->engine().submit(
      std::move(request), [mailbox = mailbox_, closer, number](const Emission& emission) {
        if (!emission.admitted) mailbox->put({.request = number, .emission = emission});
      }));
  running_.emplace(number, std::move(running));
  return number;
}

void RequestGroup::cancel(uint32_t request) {
  std::lock_guard lock(mutex_);
  const auto found = running_.find(request);
  if (found == running_.end()) return;
  stack_->engine().cancel(found->second->id);
  running_.erase(found);
}

void RequestGroup::cancel_all() {
  std::lock_guard lock(mutex_);
  for (const auto& [request, running] : running_) stack_->engine().cancel(running->id);
  running_.clear();
}

std::vector<RequestNews> RequestGroup::take(double seconds) {
  const SystemClock clock;
  const double deadline = clock.now_seconds() + seconds;
  std::vector<RequestNews> news;
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      collect(news);
      if (!news.empty() || running_.empty()) return news;
    }
    const double left = deadline - clock.now_seconds();
    if (left <= 0) return news;
    pollfd wait{.fd = mailbox_->event, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, static_cast<int>(left * 1e3) + 1) < 0 && errno == EINTR) return news;
  }
}

int RequestGroup::file_descriptor() const { return mailbox_->event; }

void RequestGroup::collect(std::vector<RequestNews>& news) {
  std::vector<uint32_t> touched;
  for (const Mailbox::Mail& mail : mailbox_->take_all()) {
    const auto found = running_.find(mail.request);
    if (found == running_.end()) continue;  // it was cancelled
    if (mail.emission) {
      read(*mail.emission, *found->second);
    } else {
      abort(*found->second);
    }
    touched.push_back(mail.request);
  }
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (const uint32_t request : touched) {
    Running& running = *running_.at(request);
    const bool finished = running.finished();
    if (!finished && (time_ == NewsTime::kEnd || !running.changed())) continue;
    RequestNews& entry = news.emplace_back();
    entry.request = request;
    entry.finished = finished;
    entry.cached_tokens = running.cached_tokens;
    entry.prompt_logprobs = std::exchange(running.prompt_logprobs, {});
    for (const auto& choice : running.choices) {
      if (!choice->changed) continue;
      ChoiceNews& of_choice = entry.choices.emplace_back(std::exchange(choice->news, {}));
      choice->news.index = of_choice.index;
      choice->changed = false;
    }
    if (finished) running_.erase(request);
  }
}

void RequestGroup::read(const Emission& emission, Running& running) {
  running.cached_tokens = std::max(running.cached_tokens, emission.cached_tokens);
  running.prompt_logprobs.insert(running.prompt_logprobs.end(), emission.prompt_logprobs.begin(),
                                 emission.prompt_logprobs.end());
  Choice& choice = *running.choices[static_cast<size_t>(emission.choice)];
  if (choice.finished) return;  // by a stop string, of which the engine did not know yet
  ChoiceNews& news = choice.news;
  for (size_t i = 0; i < emission.tokens.size(); ++i) {
    news.tokens.push_back(emission.tokens[i]);
    if (i < emission.logprobs.size()) news.logprobs.push_back(emission.logprobs[i]);
    const TextStream::Delta delta = choice.text.push(emission.tokens[i]);
    news.text += delta.text;
    choice.changed = true;
    if (!delta.stop) continue;
    news.stop_text = running.stops[*delta.stop];
    choice.finish(finish_reason_name(FinishReason::kStop));
    stack_->engine().cancel_choice(running.id, emission.choice);
    return;
  }
  if (emission.finish == FinishReason::kNone) return;
  news.text += choice.text.finish().text;
  news.stop_token = emission.stop_token;
  news.beam_score = emission.beam_score;
  choice.finish(finish_reason_name(emission.finish));
}

// The engine says no more of it.
void RequestGroup::abort(Running& running) {
  for (const auto& choice : running.choices) {
    if (!choice->finished) choice->finish(finish_reason_name(FinishReason::kAbort));
  }
}

}  // namespace headrace
