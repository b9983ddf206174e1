#include "server/cache_pins.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/checksum.h"
#include "server/random_id.h"
#include "server/server_state.h"

namespace headrace {
namespace {

constexpr int64_t kKeyShare = 4;  // a key's default: a quarter of the cache
constexpr int64_t kAllShare = 2;  // all together: a half

uint64_t digest_of(const std::string& salt, const std::vector<TokenId>& prompt) {
  const uint64_t seed = checksum64(std::as_bytes(std::span(salt.data(), salt.size())));
  return checksum64(std::as_bytes(std::span(prompt)), seed);
}

}  // namespace

const Clock& CachePins::system_clock() {
  static const SystemClock clock;
  return clock;
}

void CachePins::set_engine(Engine& engine) {
  const SchedulerOptions& options = engine.options().scheduler;
  std::lock_guard lock(mutex_);
  engine_ = &engine;
  if (!options.enable_prefix_caching || options.groups.empty()) return;
  cache_tokens_ = int64_t{options.block_count} * options.groups.front().block_tokens /
                  static_cast<int64_t>(options.groups.size());
}

int64_t CachePins::tokens_max() const {
  return limits_.tokens_per_key < 0 ? cache_tokens_ / kKeyShare : limits_.tokens_per_key;
}

CachePins::Pins::iterator CachePins::oldest_of(const std::string& owner) {
  auto oldest = pins_.end();
  for (auto pin = pins_.begin(); pin != pins_.end(); ++pin) {
    if (pin->second.owner != owner) continue;
    if (oldest == pins_.end() || pin->second.number < oldest->second.number) oldest = pin;
  }
  return oldest;
}

CachePins::Pins::iterator CachePins::erase(Pins::iterator pin) {
  if (pin->second.placed) engine_->unpin_prefix(pin->second.number);
  return pins_.erase(pin);
}

// The owner's oldest pins go until one more of `tokens` has room. False: it never has.
bool CachePins::make_room(const std::string& owner, int64_t tokens) {
  if (tokens > tokens_max()) return false;
  for (;;) {
    int64_t mine = tokens, all = tokens;
    int32_t count = 1;
    for (const auto& [_, pin] : pins_) {
      all += pin.prompt_tokens;
      if (pin.owner != owner) continue;
      mine += pin.prompt_tokens;
      ++count;
    }
    const bool fits = mine <= tokens_max() && count <= limits_.pins_per_key;
    if (fits && all <= cache_tokens_ / kAllShare) return true;
    if (count == 1) return false;  // the others hold it
    erase(oldest_of(owner));
  }
}

std::optional<std::string> CachePins::reserve(const std::string& owner, const std::string& salt,
                                              const std::vector<TokenId>& prompt, double seconds) {
  const uint64_t digest = digest_of(salt, prompt);
  const auto tokens = static_cast<int64_t>(prompt.size());
  std::lock_guard lock(mutex_);
  if (engine_ == nullptr || cache_tokens_ == 0) return std::nullopt;
  const double expires = clock_.now_seconds() + seconds;
  const int64_t expires_unix_s = unix_seconds() + static_cast<int64_t>(seconds);
  for (auto& [id, pin] : pins_) {
    if (pin.owner != owner || pin.digest != digest || pin.prompt_tokens != tokens) continue;
    pin.expires = std::max(pin.expires, expires);
    pin.shown.expires_unix_s = std::max(pin.shown.expires_unix_s, expires_unix_s);
    return id;
  }
  if (!make_room(owner, tokens)) return std::nullopt;
  Pin pin{.number = next_number_++,
          .owner = owner,
          .digest = digest,
          .prompt_tokens = tokens,
          .expires = expires,
          .shown = {.id = "pin_" + random_hex_id(),
                    .created_unix_s = unix_seconds(),
                    .expires_unix_s = expires_unix_s}};
  const std::string id = pin.shown.id;
  pins_.emplace(id, std::move(pin));
  next_expiry_ = std::min(next_expiry_.load(), expires);
  return id;
}

void CachePins::place(const std::string& id, const std::string& salt,
                      const std::vector<TokenId>& prompt) {
  std::lock_guard lock(mutex_);
  const auto found = pins_.find(id);
  if (found == pins_.end() || std::exchange(found->second.placed, true)) return;
  engine_->pin_prefix(found->second.number, salt, prompt,
                      [weak = weak_from_this(), id](int64_t tokens) {
                        if (const auto self = weak.lock()) self->on_pinned(id, tokens);
                      });
}

// On the engine's thread.
void CachePins::on_pinned(const std::string& id, int64_t tokens) {
  std::lock_guard lock(mutex_);
  const auto found = pins_.find(id);
  if (found == pins_.end()) return;
  found->second.shown.tokens = tokens;
  if (tokens == 0) erase(found);  // shorter than a page, or given up already
}

void CachePins::give_up(const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto found = pins_.find(id);
  if (found != pins_.end() && !found->second.placed) erase(found);
}

std::vector<CachePin> CachePins::list(const std::string& owner) {
  expire();
  std::vector<const Pin*> mine;
  std::lock_guard lock(mutex_);
  for (const auto& [_, pin] : pins_) {
    if (pin.owner == owner) mine.push_back(&pin);
  }
  std::sort(mine.begin(), mine.end(),
            [](const Pin* a, const Pin* b) { return a->number < b->number; });
  std::vector<CachePin> shown;
  for (const Pin* pin : mine) shown.push_back(pin->shown);
  return shown;
}

bool CachePins::remove(const std::string& owner, const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto found = pins_.find(id);
  if (found == pins_.end() || found->second.owner != owner) return false;
  erase(found);
  return true;
}

void CachePins::expire() {
  const double now = clock_.now_seconds();
  if (now < next_expiry_) return;
  std::lock_guard lock(mutex_);
  double next = 1e300;
  for (auto pin = pins_.begin(); pin != pins_.end();) {
    if (pin->second.expires <= now) {
      pin = erase(pin);
    } else {
      next = std::min(next, (pin++)->second.expires);
    }
  }
  next_expiry_ = next;
}

std::vector<PinCounts> CachePins::counts() {
  expire();
  std::map<std::string, PinCounts> by_owner;
  std::lock_guard lock(mutex_);
  for (const auto& [_, pin] : pins_) {
    PinCounts& counts = by_owner[pin.owner];
    ++counts.pins;
    counts.tokens += pin.shown.tokens;
  }
  std::vector<PinCounts> result;
  for (auto& [owner, counts] : by_owner) {
    counts.owner = owner;
    result.push_back(std::move(counts));
  }
  return result;
}

}  // namespace headrace
