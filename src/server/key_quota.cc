#include "server/key_quota.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "server/error_response.h"

namespace headrace {
namespace {

constexpr double kArithmeticError = 1e-12;  // of a bucket: who comes when told to is not refused
constexpr double kMeanWeight = 0.2;         // of the newest duration

// As OpenAI writes them: 12ms, 7.5s, 6m0s.
std::string duration_text(double seconds) {
  const double milliseconds = std::ceil(seconds * 1e3);
  if (milliseconds < 1000) return fmt::format("{:.0f}ms", milliseconds);
  if (seconds < 60) return fmt::format("{:.4g}s", milliseconds * 1e-3);
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  return fmt::format("{}m{}s", whole / 60, whole % 60);
}

}  // namespace

double RateBucket::level(double now) const {
  const double filled = std::max(0.0, now - time_) * capacity_ / 60;
  return std::min(capacity_, level_ + filled);
}

double RateBucket::seconds_until(double amount, double now) const {
  const double missing = amount - level(now);
  return missing > kArithmeticError * capacity_ ? missing * 60 / capacity_ : 0;
}

void RateBucket::take(double amount, double now) {
  level_ = std::min(capacity_, level(now) - amount);
  time_ = now;
}

std::string_view quota_kind_name(QuotaKind kind) {
  constexpr std::array<std::string_view, kQuotaKindCount> kNames = {"requests", "tokens",
                                                                    "concurrency"};
  return kNames[static_cast<size_t>(kind)];
}

KeyQuota::KeyQuota(const KeyLimits& limits, const Clock& clock)
    : limits_(limits),
      clock_(clock),
      requests_(limits.requests_per_minute),
      tokens_(limits.tokens_per_minute) {}

// REQUIRES: mutex_ is held
QuotaRefusal KeyQuota::refuse(QuotaKind kind, std::optional<double> seconds, std::string message) {
  ++refusals_[static_cast<size_t>(kind)];
  return {kind, seconds, std::move(message)};
}

KeyQuota::Admission KeyQuota::admit() {
  std::lock_guard lock(mutex_);
  const double now = clock_.now_seconds();
  if (limits_.concurrent_requests > 0 && under_way_ >= limits_.concurrent_requests) {
    return {nullptr, refuse(QuotaKind::kConcurrency, seconds_mean_ / limits_.concurrent_requests,
                            fmt::format("{} requests of this API key are under way, which is its "
                                        "limit",
                                        under_way_))};
  }
  if (limits_.requests_per_minute > 0) {
    const double wait = requests_.seconds_until(1, now);
    if (wait > 0) {
      return {nullptr, refuse(QuotaKind::kRequests, wait,
                              fmt::format("the limit of this API key is {:.0f} requests a minute",
                                          limits_.requests_per_minute))};
    }
    requests_.take(1, now);
  }
  ++under_way_;
  return {std::make_unique<Lease>(*this), std::nullopt};
}

std::optional<QuotaRefusal> KeyQuota::take_tokens(Lease& lease, int64_t prompt, int64_t named) {
  if (limits_.tokens_per_minute <= 0) return std::nullopt;
  std::lock_guard lock(mutex_);
  const double now = clock_.now_seconds();
  const double amount = static_cast<double>(prompt) + static_cast<double>(named);
  if (amount > tokens_.capacity()) {
    return refuse(QuotaKind::kTokens, std::nullopt,
                  fmt::format("the request may take {:.0f} tokens, and the limit of this API key "
                              "is {:.0f} tokens a minute: ask for fewer",
                              amount, limits_.tokens_per_minute));
  }
  if (const double wait = tokens_.seconds_until(amount, now); wait > 0) {
    return refuse(
        QuotaKind::kTokens, wait,
        fmt::format("the limit of this API key is {:.0f} tokens a minute: {:.0f} are "
                    "left, the request may take {:.0f}",
                    limits_.tokens_per_minute, std::max(0.0, tokens_.level(now)), amount));
  }
  tokens_.take(amount, now);
  lease.taken_ = amount;
  lease.spent_ = static_cast<double>(prompt);
  return std::nullopt;
}

void KeyQuota::settle(const Lease& lease) {
  std::lock_guard lock(mutex_);
  const double now = clock_.now_seconds();
  --under_way_;
  seconds_mean_ += kMeanWeight * (now - lease.began_ - seconds_mean_);
  if (limits_.tokens_per_minute > 0) tokens_.take(lease.spent_ - lease.taken_, now);
}

std::vector<HttpHeader> KeyQuota::headers() const {
  std::vector<HttpHeader> headers;
  std::lock_guard lock(mutex_);
  const double now = clock_.now_seconds();
  const auto add = [&](std::string_view what, const RateBucket& bucket) {
    const auto header = [&](std::string_view name, std::string value) {
      headers.push_back({fmt::format("x-ratelimit-{}-{}", name, what), std::move(value)});
    };
    header("limit", fmt::format("{:.0f}", bucket.capacity()));
    header("remaining", fmt::format("{:.0f}", std::floor(std::max(0.0, bucket.level(now)))));
    header("reset", duration_text(bucket.seconds_until(bucket.capacity(), now)));
  };
  if (limits_.requests_per_minute > 0) add("requests", requests_);
  if (limits_.tokens_per_minute > 0) add("tokens", tokens_);
  return headers;
}

uint64_t KeyQuota::refusals(QuotaKind kind) const {
  std::lock_guard lock(mutex_);
  return refusals_[static_cast<size_t>(kind)];
}

KeyQuotas::KeyQuotas(const ApiKeys& keys, const Clock& clock) : quotas_(keys.size()) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const KeyLimits& limits = keys.limits(static_cast<int>(i));
    if (limits != KeyLimits{}) quotas_[i] = std::make_unique<KeyQuota>(limits, clock);
  }
}

KeyQuota* KeyQuotas::of(int place) const {
  return place < 0 ? nullptr : quotas_[static_cast<size_t>(place)].get();
}

HttpResponse quota_response(const QuotaRefusal& refusal, const KeyQuota& quota) {
  HttpResponse response = refusal.retry_seconds
                              ? too_many_requests(refusal.message, *refusal.retry_seconds)
                              : error_response(400, refusal.message);
  for (HttpHeader& header : quota.headers()) response.headers.push_back(std::move(header));
  return response;
}

}  // namespace headrace
