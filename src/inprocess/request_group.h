// RequestGroup: requests of one caller through an Engine, answered as text. The news of all of them
// come from one place, so that one thread, or one event loop, reads any number of answers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/logprobs.h"
#include "base/sampling_params.h"
#include "sched/request.h"
#include "stack/model_stack.h"
#include "text/text_stream.h"

namespace headrace {

// What came for one of a request's n choices since the last news of it.
struct ChoiceNews {
  int32_t index = 0;
  std::string text;
  std::vector<TokenId> tokens;          // with an end id
  std::vector<TokenLogprobs> logprobs;  // one a token, where asked for
  std::string finish_reason;            // "stop", "length", "abort" or "error"; empty: it goes on
  // What ended it: a stop string, or one of stop_token_ids.
  std::optional<std::string> stop_text;
  std::optional<TokenId> stop_token;
  std::optional<BeamScore> beam_score;  // of an answer of a search
};

struct RequestNews {
  uint32_t request = 0;
  std::vector<ChoiceNews> choices;             // those with news, by their index
  std::vector<TokenLogprobs> prompt_logprobs;  // of its tokens from the second on, where asked for
  int32_t cached_tokens = 0;
  bool finished = false;  // there is no more news of it
};

// Of a request there is news with every step, or once, when all has come.
enum class NewsTime { kSteps, kEnd };

// All members: any thread; one takes at a time.
class RequestGroup {
 public:
  // `stack` has a tokenizer.
  RequestGroup(std::shared_ptr<ModelStack> stack, NewsTime time);
  ~RequestGroup();  // cancel_all()

  // The number by which news names it. max_tokens < 0: as many as the context holds. Errors are
  // those of answer_tokens_max() and Engine::submit(). `beams`: the answers are the best of a
  // search.
  Result<uint32_t> submit(std::vector<TokenId> prompt, SamplingParams sampling,
                          const TextStreamOptions& options,
                          const std::optional<BeamOptions>& beams);
  void cancel(uint32_t request);  // no news of it comes any more
  void cancel_all();

  // Waits for news, `seconds` at most. Empty: none came, nothing runs, or a signal came.
  std::vector<RequestNews> take(double seconds);
  // Readable (poll, epoll) while take(0) may have news. It is the group's.
  int file_descriptor() const;

 private:
  struct Mailbox;
  struct Choice;
  struct Running;

  void read(const Emission& emission, Running& running);
  static void abort(Running& running);
  void collect(std::vector<RequestNews>& news);

  const std::shared_ptr<ModelStack> stack_;
  const NewsTime time_;
  const std::shared_ptr<Mailbox> mailbox_;
  std::mutex mutex_;  // of what follows; not held while take() waits
  std::map<uint32_t, std::unique_ptr<Running>> running_;
  uint32_t next_request_ = 0;
};

}  // namespace headrace
