// What one API key may take: requests and tokens a minute, and requests at a time (KeyLimits).
//
// Rates are token buckets: they hold a minute's worth and fill evenly, so that over any time T a
// key gets at most a minute's worth and T of its rate. Tokens are taken when a request arrives: its
// prompt and the max_tokens it names; what it did not generate is given back when it ends, what it
// generated beyond (it named none) is owed. So a Retry-After is what the bucket needs at most.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "server/api_keys.h"
#include "server/http_message.h"

namespace headrace {

// A minute's worth that fills evenly. Times are seconds of any one clock.
class RateBucket {
 public:
  explicit RateBucket(double per_minute) : capacity_(per_minute), level_(per_minute) {}

  double capacity() const { return capacity_; }
  double level(double now) const;
  // Seconds until it holds `amount`; 0: now. REQUIRES: amount <= capacity()
  double seconds_until(double amount, double now) const;
  // Takes what may not be there: then it is owed. Negative: gives back.
  void take(double amount, double now);

 private:
  double capacity_;
  double level_;
  double time_ = 0;  // of level_
};

enum class QuotaKind : uint8_t { kRequests, kTokens, kConcurrency };
inline constexpr int kQuotaKindCount = 3;
std::string_view quota_kind_name(QuotaKind kind);

struct QuotaRefusal {
  QuotaKind kind = QuotaKind::kRequests;
  std::optional<double> retry_seconds;  // empty: it can never be admitted
  std::string message;
};

// Any thread.
class KeyQuota {
 public:
  // `clock` outlives this.
  KeyQuota(const KeyLimits& limits, const Clock& clock);

  // A request's place among the concurrent ones, until its destructor; the quota outlives it.
  class Lease {
   public:
    explicit Lease(KeyQuota& quota) : quota_(quota), began_(quota.clock_.now_seconds()) {}
    ~Lease() { quota_.settle(*this); }
    Lease(const Lease&) = delete;
    // So much was generated. One thread.
    void spend(int64_t tokens) { spent_ += static_cast<double>(tokens); }

   private:
    friend class KeyQuota;
    KeyQuota& quota_;
    const double began_;
    double taken_ = 0;  // of the tokens' bucket
    double spent_ = 0;  // of the prompt and so far
  };

  // A request arrives. Exactly one of the two is set.
  struct Admission {
    std::unique_ptr<Lease> lease;
    std::optional<QuotaRefusal> refusal;
  };
  Admission admit();
  // It is known how long the request is: its prompts, and the most that it named for its answers
  // (0: it named none). After a refusal it still counts as a request.
  std::optional<QuotaRefusal> take_tokens(Lease& lease, int64_t prompt, int64_t named);

  // x-ratelimit-limit-requests and so on, as OpenAI's, of what is limited.
  std::vector<HttpHeader> headers() const;
  uint64_t refusals(QuotaKind kind) const;

 private:
  void settle(const Lease& lease);
  QuotaRefusal refuse(QuotaKind kind, std::optional<double> seconds, std::string message);

  const KeyLimits limits_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  RateBucket requests_, tokens_;
  int32_t under_way_ = 0;
  double seconds_mean_ = 1;  // of requests that ended, the later the more; before: a guess
  std::array<uint64_t, kQuotaKindCount> refusals_{};
};

// The quotas of the keys that have limits. Any thread.
class KeyQuotas {
 public:
  KeyQuotas(const ApiKeys& keys, const Clock& clock);
  // Of the key at that place; nullptr: it has no limits (or there is no key).
  KeyQuota* of(int place) const;

 private:
  std::vector<std::unique_ptr<KeyQuota>> quotas_;  // by place of the key
};

// 429 with Retry-After, or 400 for what can never be admitted; with the quota's headers.
HttpResponse quota_response(const QuotaRefusal& refusal, const KeyQuota& quota);

}  // namespace headrace
