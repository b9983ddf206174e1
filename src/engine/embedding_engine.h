// EmbeddingEngine: texts of many clients become vectors, on one thread: embeddings, or where the
// model has a classifier's head the logits of its classes. A text needs no cache and
// no sampling, so there is no scheduler: each pass takes texts in turn from the requests that wait,
// as many as fit in its tokens, whoever sent them. CONTRACT.md holds the rules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/classifier_head.h"
#include "base/ids.h"
#include "base/status.h"
#include "models/encoder_batch.h"

namespace headrace {

// A text, or two that are read together.
struct EmbeddingText {
  std::vector<TokenId> ids;
  int32_t second_count = 0;  // ids at its end that have the second token type: of a pair
};
inline std::vector<EmbeddingText> single_texts(std::vector<std::vector<TokenId>> texts) {
  std::vector<EmbeddingText> singles;
  singles.reserve(texts.size());
  for (std::vector<TokenId>& ids : texts) singles.push_back({.ids = std::move(ids)});
  return singles;
}

// What computes a pass. One thread calls it, the engine's.
class EmbeddingRunner {
 public:
  virtual ~EmbeddingRunner() = default;
  virtual int32_t dimensions() const = 0;  // of a vector; of a classifier, its classes
  virtual int32_t vocab_size() const = 0;
  virtual int32_t length_max() const = 0;  // tokens of a text
  virtual bool normalises() const = 0;     // vectors have length 1
  // What a vector's numbers are the logits of; without labels: vectors are embeddings.
  virtual const ClassifierHead& head() const = 0;
  // Once, on the thread that calls run(), before it: what a later filter of system calls
  // (serve --seccomp) may forbid is done here.
  virtual void prepare_thread() {}
  // `vectors` [S, dimensions()], one a sequence, which lie in `batch` one behind the other.
  // `go_on` is asked many times a pass, on the same thread, which shows that the pass advances;
  // once it says no, the pass may be abandoned with false, and the vectors are worth nothing.
  virtual bool run(const EncoderBatch& batch, std::span<float> vectors,
                   const std::function<bool()>& go_on) = 0;
};

struct EmbeddingOptions {
  // Of a pass; a longer text has one to itself. Weights are read from the cache for many rows, and
  // who comes meanwhile waits for few.
  int32_t pass_tokens_max = 512;
  // Of all requests that wait; more is refused at once.
  int32_t queued_requests_max = 256;
  int64_t queued_tokens_max = int64_t{1} << 22;
  double watchdog_seconds = 10;  // a pass that is silent for longer makes the engine not ready
};

struct EmbeddingResult {
  // kUnavailable: the engine has stopped. kInternal: a vector has a NaN.
  Status status;
  std::vector<float> vectors;  // [texts, dimensions], in the order of the request
};
// Called once, on the engine's thread or on that of cancel_all(). It must not block, and of the
// engine it may call cancel() alone.
using EmbeddingSink = std::function<void(EmbeddingResult result)>;

struct EmbeddingStats {
  uint64_t passes = 0, texts = 0, tokens = 0, requests = 0;  // that ended
  double pass_seconds = 0;
  int32_t requests_running = 0;  // of which a text was computed
  int32_t requests_waiting = 0;
};

// Makes the first `dimensions` values of `vector` a vector of their own, as the runner's are.
void shorten_vector(const EmbeddingRunner& runner, std::span<float> vector, size_t dimensions);
// Makes probabilities, or what `activation` makes, of one text's logits.
void activate(ScoreActivation activation, std::span<float> logits);
// In [-1, 1]; 0 where one has no length.
double cosine(std::span<const float> a, std::span<const float> b);

// All members: any thread.
class EmbeddingEngine {
 public:
  // `runner` outlives nothing: the engine owns it.
  static std::unique_ptr<EmbeddingEngine> create(const EmbeddingOptions& options,
                                                 std::unique_ptr<EmbeddingRunner> runner);
  virtual ~EmbeddingEngine() = default;  // cancel_all(), and ends the thread

  // kInvalidArgument: no text, an empty one, one over length_max() or ids outside the vocabulary.
  // kExhausted: the queue is full. kUnavailable: the engine has stopped. On an error the sink is
  // not called.
  virtual Result<RequestId> submit(std::vector<EmbeddingText> texts, EmbeddingSink sink) = 0;
  // The sink is dropped and not called, unless it is being called now.
  virtual void cancel(RequestId request) = 0;
  // Whether a pass has begun on it, or it has ended.
  virtual bool started(RequestId request) const = 0;
  // Ends all requests with kUnavailable, abandons the pass, and refuses new ones from now on. No
  // sink is being called when this returns. Not from a sink.
  virtual void cancel_all() = 0;

  virtual double retry_after_seconds() const = 0;  // after kExhausted: until half of it is done
  virtual EmbeddingStats stats() const = 0;
  virtual bool healthy() const = 0;
  virtual const EmbeddingRunner& runner() const = 0;  // its sizes
};

}  // namespace headrace
