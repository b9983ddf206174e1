#include "apps/limit_flags.h"

#include <algorithm>

namespace headrace {
namespace {
constexpr const char* kLimitGroup = "Server";  // of the help
}  // namespace

void add_queue_limit_flags(CLI::App& app, SchedulerOptions& scheduler, RequestLimits& requests) {
  app.add_option("--max-num-queued-reqs,--max-queued-requests", scheduler.max_queued_requests,
                 "Requests that may wait; more are told 429 (default: 256)")
      ->transform(size_between(1, 1 << 20))
      ->type_name("N")
      ->group(kLimitGroup);
  app.add_option("--queue-timeout", requests.queue_seconds_max,
                 "Longest wait for the first step; then a request is told 503 (0: no bound) "
                 "(default: 30)")
      ->check(number_between(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group(kLimitGroup);
  app.add_option("--flex-queue-timeout", requests.flex_queue_seconds_max,
                 "The same of requests with service_tier flex, which take what others leave "
                 "(default: 600)")
      ->check(number_between(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group(kLimitGroup);
  app.add_option_function<double>(
         "--sse-ping-interval",
         [&requests](double seconds) { requests.ping_seconds = std::max(0.0, seconds); },
         "A stream that is silent for so long gets a comment, which keeps proxies from cutting it "
         "(0: none) (default: 30)")
      ->check(number_between(-1.0, 86400.0))
      ->type_name("SECONDS")
      ->group(kLimitGroup);
  app.add_option("--max-tokenize-bytes", requests.tokenize_bytes_max,
                 "Longest text of /tokenize; longer ones are refused (default: 2 MiB)")
      ->transform(size_between(1, 1 << 30))
      ->type_name("BYTES")
      ->group(kLimitGroup);
}

void add_key_limit_flags(CLI::App& app, KeyLimits& limits) {
  const auto key_limit = [&](const char* name, auto& limit, const char* help) {
    app.add_option(name, limit, help)
        ->transform(size_between(1, int64_t{1} << 30))
        ->type_name("N")
        ->group(kLimitGroup);
  };
  key_limit("--key-requests-per-minute", limits.requests_per_minute,
            "Of each API key that has no limit of its own; more are told 429 (default: no limit)");
  key_limit("--key-tokens-per-minute", limits.tokens_per_minute,
            "The same, of prompts and answers (default: no limit)");
  key_limit("--key-concurrent-requests", limits.concurrent_requests,
            "The same, at a time (default: no limit)");
}

void add_size_limit_flags(CLI::App& app, HttpLimits& http, RequestLimits& requests) {
  app.add_option("--max-connections", http.connections_max,
                 "Connections open at the same time; more wait to be accepted (default: 4096)")
      ->transform(size_between(1, 1 << 20))
      ->type_name("N")
      ->group(kLimitGroup);
  app.add_option("--max-connections-per-address", http.connections_per_address_max,
                 "Of one client address; more are told 429 (default: 256)")
      ->transform(size_between(1, 1 << 20))
      ->type_name("N")
      ->group(kLimitGroup);
  app.add_option(
         "--max-pinned-tokens", requests.pins.tokens_per_key,
         "Prompt tokens that each API key may keep in the prefix cache; 0: none (default: a "
         "quarter of the cache)")
      ->transform(size_between(0, int64_t{1} << 40))
      ->type_name("N")
      ->group(kLimitGroup);
  app.add_option("--max-stored-response-bytes", requests.stored_response_bytes_max,
                 "Memory for responses of /v1/responses that each API key may ask for again; 0: "
                 "none is kept (default: 32 MiB)")
      ->transform(size_between(0, int64_t{1} << 40))
      ->type_name("BYTES")
      ->group(kLimitGroup);
  app.add_option("--max-answer-bytes", requests.answer_bytes_max,
                 "Of an answer that is not streamed, log-probabilities included; longer ones are "
                 "refused (default: 64 MiB)")
      ->transform(size_between(1 << 20, int64_t{1} << 40))
      ->type_name("BYTES")
      ->group(kLimitGroup);
  app.add_option("--max-n", requests.choices_max,
                 "Most answers to one prompt (n); --max-num-seqs bounds them, too (default: 128)")
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("N")
      ->group(kLimitGroup);
  app.add_option("--max-logprobs", requests.logprobs_max,
                 "Most log-probabilities for each token (default: 20)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->group(kLimitGroup);
}

}  // namespace headrace
