#include "engine/embedding_engine.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "models/pooling.h"

namespace headrace {
namespace {

// A request whose sink still expects its vectors.
struct PendingEmbeddings {
  RequestId id;
  std::vector<EmbeddingText> texts;
  EmbeddingSink sink;
  std::vector<float> vectors;  // [texts, dimensions], from its first text in a pass on
  size_t taken = 0;            // texts that are or were in a pass
  size_t done = 0;
  bool failed = false;  // a vector has a NaN
};

int64_t token_count(const std::vector<EmbeddingText>& texts) {
  int64_t count = 0;
  for (const EmbeddingText& text : texts) count += static_cast<int64_t>(text.ids.size());
  return count;
}

// The texts of one pass, and whose they are.
struct EmbeddingPass {
  struct Text {
    RequestId request;
    size_t index;
  };
  std::vector<Text> texts;
  std::vector<RowSequence> sequences;
  std::vector<int32_t> second_rows;
  std::vector<TokenId> tokens;

  EncoderBatch batch() const {
    return {.tokens = tokens, .sequences = sequences, .second_rows = second_rows};
  }
};

class EmbeddingEngineImpl final : public EmbeddingEngine {
 public:
  EmbeddingEngineImpl(const EmbeddingOptions& options, std::unique_ptr<EmbeddingRunner> runner)
      : options_(options), runner_(std::move(runner)) {
    thread_ = std::thread([this] { loop(); });
  }

  ~EmbeddingEngineImpl() override {
    cancel_all();
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    thread_.join();
  }

  Result<RequestId> submit(std::vector<EmbeddingText> texts, EmbeddingSink sink) override {
    HR_RETURN_IF_ERROR(check_texts(texts));
    const int64_t tokens = token_count(texts);
    RequestId id;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return unavailable("the server is shutting down");
      HR_RETURN_IF_ERROR(check_room(tokens));
      id = RequestId(++last_id_);
      pending_.push_back({.id = id, .texts = std::move(texts), .sink = std::move(sink)});
      tokens_waiting_ += tokens;
      if (pending_.size() == 1) progress_time_ = clock_.now_seconds();
    }
    work_.notify_one();
    return id;
  }

  void cancel(RequestId request) override {
    PendingEmbeddings dropped;  // its sink is destroyed outside of the lock
    const std::lock_guard lock(mutex_);
    const auto found = find(request);
    if (found != pending_.end()) dropped = take_out(found);
  }

  bool started(RequestId request) const override {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(pending_, request, &PendingEmbeddings::id);
    return found == pending_.end() || found->taken > 0;
  }

  void cancel_all() override {
    std::deque<PendingEmbeddings> ended;
    {
      std::unique_lock lock(mutex_);
      closed_ = true;
      ended.swap(pending_);
      tokens_waiting_ = 0;
      delivered_.wait(lock, [this] { return !delivering_; });
    }
    for (PendingEmbeddings& each : ended) {
      each.sink({unavailable("the server is shutting down"), {}});
    }
  }

  double retry_after_seconds() const override {
    const std::lock_guard lock(mutex_);
    if (stats_.tokens == 0) return 1;
    const double speed = static_cast<double>(stats_.tokens) / std::max(stats_.pass_seconds, 1e-6);
    return std::clamp(static_cast<double>(tokens_waiting_) / 2 / speed, 1.0, 600.0);
  }

  EmbeddingStats stats() const override {
    const std::lock_guard lock(mutex_);
    EmbeddingStats stats = stats_;
    const auto running = std::ranges::count_if(
        pending_, [](const PendingEmbeddings& each) { return each.taken > 0; });
    stats.requests_running = static_cast<int32_t>(running);
    stats.requests_waiting = static_cast<int32_t>(pending_.size()) - stats.requests_running;
    return stats;
  }

  bool healthy() const override {
    const std::lock_guard lock(mutex_);
    return pending_.empty() || clock_.now_seconds() - progress_time_ < options_.watchdog_seconds;
  }

  const EmbeddingRunner& runner() const override { return *runner_; }

 private:
  using Pending = std::deque<PendingEmbeddings>;

  Status check_texts(const std::vector<EmbeddingText>& texts) const {
    if (texts.empty()) return invalid_argument("there is no text", "input");
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto length = static_cast<int64_t>(texts[i].ids.size());
      if (length < 1 || length > runner_->length_max()) {
        return invalid_argument(fmt::format("input[{}] has {} tokens, a text has 1 to {}", i,
                                            length, runner_->length_max()),
                                "input");
      }
      CHECK(texts[i].second_count >= 0 && texts[i].second_count <= length);
      for (const TokenId id : texts[i].ids) {
        if (id < 0 || id >= runner_->vocab_size()) {
          return invalid_argument(fmt::format("input[{}] has token id {}, the vocabulary has {}", i,
                                              id, runner_->vocab_size()),
                                  "input");
        }
      }
    }
    return ok_status();
  }

  // What is alone is never too much.
  Status check_room(int64_t tokens) const {
    if (pending_.empty()) return ok_status();
    if (pending_.size() >= static_cast<size_t>(options_.queued_requests_max)) {
      return exhausted(fmt::format("{} requests wait, which is the most", pending_.size()));
    }
    if (tokens_waiting_ + tokens > options_.queued_tokens_max) {
      return exhausted(fmt::format("{} tokens wait, and {} more are over the {} that may",
                                   tokens_waiting_, tokens, options_.queued_tokens_max));
    }
    return ok_status();
  }

  // REQUIRES of what follows: mutex_ is held.
  Pending::iterator find(RequestId id) {
    return std::ranges::find(pending_, id, &PendingEmbeddings::id);
  }

  PendingEmbeddings take_out(Pending::iterator at) {
    PendingEmbeddings request = std::move(*at);
    pending_.erase(at);
    for (size_t i = request.taken; i < request.texts.size(); ++i) {
      tokens_waiting_ -= static_cast<int64_t>(request.texts[i].ids.size());
    }
    return request;
  }

  // One text of each request in turn, so that a long list keeps nobody waiting. After an exception
  // `pass` names all texts that were taken.
  void fill_pass(EmbeddingPass& pass) {
    for (size_t idle = 0; idle < pending_.size();) {
      PendingEmbeddings& request = pending_.front();
      const bool none_left = request.taken == request.texts.size();
      if (!none_left && !fits(request.texts[request.taken], pass)) break;
      idle = none_left ? idle + 1 : 0;
      if (!none_left) add_text(request, pass);
      std::rotate(pending_.begin(), pending_.begin() + 1, pending_.end());
    }
  }

  // A text that is longer than a pass has one to itself.
  bool fits(const EmbeddingText& text, const EmbeddingPass& pass) const {
    const size_t tokens = pass.tokens.size() + text.ids.size();
    return pass.texts.empty() || tokens <= static_cast<size_t>(options_.pass_tokens_max);
  }

  void add_text(PendingEmbeddings& request, EmbeddingPass& pass) {
    const EmbeddingText& text = request.texts[request.taken];
    pass.texts.push_back({request.id, request.taken});
    request.vectors.resize(request.texts.size() * static_cast<size_t>(runner_->dimensions()));
    pass.sequences.push_back(
        {static_cast<int32_t>(pass.tokens.size()), static_cast<int32_t>(text.ids.size())});
    pass.second_rows.push_back(text.second_count);
    pass.tokens.insert(pass.tokens.end(), text.ids.begin(), text.ids.end());
    tokens_waiting_ -= static_cast<int64_t>(text.ids.size());
    ++request.taken;
  }

  // Vectors go to their requests; those of requests that were cancelled meanwhile to nobody.
  // Returns the requests that are done.
  std::vector<PendingEmbeddings> store(const EmbeddingPass& pass, std::span<const float> vectors) {
    std::vector<PendingEmbeddings> ended;
    ended.reserve(pass.texts.size());  // what is taken out is not lost
    const auto width = static_cast<size_t>(runner_->dimensions());
    for (size_t i = 0; i < pass.texts.size(); ++i) {
      const auto at = find(pass.texts[i].request);
      if (at == pending_.end()) continue;
      const std::span<const float> vector = vectors.subspan(i * width, width);
      std::ranges::copy(
          vector, at->vectors.begin() + static_cast<std::ptrdiff_t>(pass.texts[i].index * width));
      at->failed |= std::ranges::any_of(vector, [](float value) { return !std::isfinite(value); });
      if (++at->done == at->texts.size()) ended.push_back(take_out(at));
    }
    ++stats_.passes;
    stats_.texts += pass.texts.size();
    stats_.tokens += pass.tokens.size();
    stats_.requests += ended.size();
    return ended;
  }
  // End of what requires mutex_.

  static EmbeddingResult result_of(PendingEmbeddings& request) {
    if (request.failed) return {internal_error("the model gave no valid vector"), {}};
    return {ok_status(), std::move(request.vectors)};
  }

  // A sink that throws loses its own answer alone.
  static void call_sink(const EmbeddingSink& sink, EmbeddingResult result) {
    try {
      sink(std::move(result));
    } catch (const std::exception& error) {
      log_error("the answer of a request for embeddings was lost: {}", error.what());
    }
  }

  void end_delivery() {
    {
      const std::lock_guard lock(mutex_);
      delivering_ = false;
    }
    delivered_.notify_all();
  }

  // Whether the pass goes on.
  bool note_progress() {
    const std::lock_guard lock(mutex_);
    progress_time_ = clock_.now_seconds();
    return !closed_;
  }

  void run_pass(const EmbeddingPass& pass) {
    const double start = clock_.now_seconds();
    vectors_.resize(pass.texts.size() * static_cast<size_t>(runner_->dimensions()));
    if (!runner_->run(pass.batch(), vectors_, [this] { return note_progress(); })) {
      return;  // its requests have been told
    }
    std::vector<PendingEmbeddings> ended;
    {
      const std::lock_guard lock(mutex_);
      progress_time_ = clock_.now_seconds();
      stats_.pass_seconds += progress_time_ - start;
      ended = store(pass, vectors_);
      delivering_ = !ended.empty();
    }
    if (ended.empty()) return;
    for (PendingEmbeddings& request : ended) call_sink(request.sink, result_of(request));
    ended.clear();
    end_delivery();
  }

  // Ends the requests of a pass that threw. It allocates little, as memory may be what there is
  // none of.
  void fail_pass(const EmbeddingPass& pass, const char* why) {
    log_error("a pass of {} texts failed: {}", pass.texts.size(), why);
    for (const EmbeddingPass::Text& text : pass.texts) {
      PendingEmbeddings request;
      {
        const std::lock_guard lock(mutex_);
        progress_time_ = clock_.now_seconds();
        const auto at = find(text.request);
        if (at == pending_.end()) continue;  // ended with an earlier text of it, or cancelled
        request = take_out(at);
        delivering_ = true;
      }
      call_sink(request.sink, {internal_error("the vectors could not be computed"), {}});
      request = {};
      end_delivery();
    }
  }

  void loop() {
    runner_->prepare_thread();
    while (true) {
      EmbeddingPass pass;
      try {
        {
          std::unique_lock lock(mutex_);
          work_.wait(lock, [this] { return stop_ || !pending_.empty(); });
          if (stop_) return;
          fill_pass(pass);
        }
        run_pass(pass);
      } catch (const std::exception& error) {
        fail_pass(pass, error.what());
      }
    }
  }

  const EmbeddingOptions options_;
  const std::unique_ptr<EmbeddingRunner> runner_;
  const SystemClock clock_;
  std::vector<float> vectors_;  // the thread's

  mutable std::mutex mutex_;  // of what follows; never held while a pass runs or a sink is called
  std::condition_variable work_, delivered_;
  Pending pending_;  // the next text is the first request's
  int64_t tokens_waiting_ = 0;
  uint64_t last_id_ = 0;
  bool closed_ = false, stop_ = false, delivering_ = false;
  double progress_time_ = 0;
  EmbeddingStats stats_;
  std::thread thread_;
};

}  // namespace

void shorten_vector(const EmbeddingRunner& runner, std::span<float> vector, size_t dimensions) {
  CHECK(dimensions <= vector.size());
  if (runner.normalises() && dimensions < vector.size()) scale_to_unit(vector.first(dimensions));
}

void activate(ScoreActivation activation, std::span<float> logits) {
  switch (activation) {
    case ScoreActivation::kIdentity:
      return;
    case ScoreActivation::kSigmoid:
      for (float& value : logits)
        value = static_cast<float>(1.0 / (1.0 + std::exp(-double{value})));
      return;
    case ScoreActivation::kSoftmax: {
      const double most = *std::ranges::max_element(logits);
      double sum = 0.0;
      for (const float value : logits) sum += std::exp(value - most);
      for (float& value : logits) value = static_cast<float>(std::exp(value - most) / sum);
      return;
    }
  }
}

double cosine(std::span<const float> a, std::span<const float> b) {
  CHECK(a.size() == b.size());
  double product = 0.0, a_squares = 0.0, b_squares = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += double{a[i]} * b[i];
    a_squares += double{a[i]} * a[i];
    b_squares += double{b[i]} * b[i];
  }
  const double lengths = std::sqrt(a_squares * b_squares);
  return lengths > 0.0 ? std::clamp(product / lengths, -1.0, 1.0) : 0.0;
}

std::unique_ptr<EmbeddingEngine> EmbeddingEngine::create(const EmbeddingOptions& options,
                                                         std::unique_ptr<EmbeddingRunner> runner) {
  return std::make_unique<EmbeddingEngineImpl>(options, std::move(runner));
}

}  // namespace headrace
