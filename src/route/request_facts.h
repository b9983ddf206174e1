// What the router knows of a request before it is sent: read from its path and the bytes of its
// body, which are passed on unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/named.h"
#include "server/http_message.h"

namespace headrace {

// Which workers a request may go to, and what may be done when one fails.
enum class RouteKind : uint8_t {
  kCompute,    // any worker; nothing is kept there: it may be sent again
  kOwned,      // the worker that has what it names; where that is unknown, all are asked
  kHome,       // files and batches: all of one client's are on one worker
  kEveryone,   // changes workers (caches, adapters, models): each gets it
  kAnyWorker,  // tells something; any worker
};

// How a streamed answer is cut into events.
enum class StreamFraming : uint8_t { kEvents /* SSE */, kLines /* a JSON object a line */ };

// Bytes of text that one hash stands for: about 64 tokens.
inline constexpr size_t kRouteBlockBytes = 256;
inline constexpr int64_t kTokensPerRouteBlock = 64;

class RequestFacts {
 public:
  RequestFacts() = default;
  explicit RequestFacts(const HttpRequest& request);

  RouteKind kind = RouteKind::kAnyWorker;
  bool streams = false;     // a generation whose answer comes as events
  bool computes = false;    // a step of a model is made for it: what the limits of keys count
  bool background = false;  // of a response: nobody waits for it, its client asks again later
  bool one_answer = true;   // one choice of one prompt, as far as the body tells
  bool is_get = false;
  std::string model;       // empty: it names none
  size_t model_begin = 0;  // of its string in the body, with the quotes
  size_t model_bytes = 0;
  std::string session;        // what stays on one worker: a conversation, a user; empty: not said
  std::string owned_id;       // of kOwned
  std::string client;         // of kHome: who asks, as a hash
  int64_t prompt_tokens = 0;  // by the length of its text
  int64_t output_tokens = 0;  // asked for, or usual
  int64_t named_tokens = 0;   // asked for, of all choices; 0: it names no bound
  double difficulty = 0.5;    // how hard it is, of 0 to 1: what it says of itself
  bool resumes = false;   // goes on with another worker's stream: for those that keep the journal
  bool reserved = false;  // its body has a member that is the router's own
  // Chained hashes of the text's blocks: equal ones mean that all before is equal too.
  std::vector<uint64_t> blocks;

  bool may_be_repeated() const { return kind == RouteKind::kCompute || is_get; }

 private:
  void read_path(const HttpRequest& request);
  void read_body(const HttpRequest& request);
};

// The ids that an answer's JSON object gives to what a worker keeps from now on.
std::vector<std::string> ids_kept_by_worker(std::string_view body);

}  // namespace headrace
