// Pins: prompts whose keys and values a client asked to keep, for a time. They are the last that
// the prefix cache gives up, and still no reason to refuse work.
//
// A pin begins as a reservation, when its request arrives; it is placed when the prompt has been
// computed. A new pin of an owner takes the place of its oldest ones when it has too many; all pins
// together hold a part of the cache at most.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "server/server_limits.h"

namespace headrace {

struct CachePin {
  std::string id;      // "pin_..."
  int64_t tokens = 0;  // that are pinned; 0: not computed yet
  int64_t created_unix_s = 0, expires_unix_s = 0;
};

struct PinCounts {
  std::string owner;
  int64_t pins = 0, tokens = 0;
};

// Any thread.
class CachePins : public std::enable_shared_from_this<CachePins> {
 public:
  // `clock` outlives this. REQUIRES: it is made as a std::shared_ptr: the engine may answer when
  // the server has gone.
  explicit CachePins(PinLimits limits, const Clock& clock = system_clock())
      : limits_(limits), clock_(clock) {}

  // The engine that holds the cache; outlives the use of this. Before it nothing is pinned. Once.
  void set_engine(Engine& engine);

  // Room for a prompt: the id of its pin. A prompt that is pinned already keeps its pin, for
  // longer. Empty: it is longer than the owner may pin, or all together hold what they may.
  std::optional<std::string> reserve(const std::string& owner, const std::string& salt,
                                     const std::vector<TokenId>& prompt, double seconds);
  // The prompt has been computed. Nothing happens for a pin that is gone or placed.
  void place(const std::string& id, const std::string& salt, const std::vector<TokenId>& prompt);
  // The prompt will not be computed: the reservation ends. A pin that is placed stays.
  void give_up(const std::string& id);

  std::vector<CachePin> list(const std::string& owner);  // the oldest first
  // False: the owner has no such pin.
  bool remove(const std::string& owner, const std::string& id);
  // Ends what is over; costs nothing when nothing is.
  void expire();
  std::vector<PinCounts> counts();

 private:
  struct Pin {
    uint64_t number = 0;  // the engine's id, and the order of creation
    std::string owner;
    uint64_t digest = 0;  // of salt and prompt
    int64_t prompt_tokens = 0;
    bool placed = false;
    double expires = 0;  // clock
    CachePin shown;
  };
  using Pins = std::map<std::string, Pin>;

  int64_t tokens_max() const;
  bool make_room(const std::string& owner, int64_t tokens);
  Pins::iterator oldest_of(const std::string& owner);
  Pins::iterator erase(Pins::iterator pin);
  void on_pinned(const std::string& id, int64_t tokens);

  static const Clock& system_clock();

  const PinLimits limits_;
  const Clock& clock_;
  std::atomic<double> next_expiry_{1e300};
  std::mutex mutex_;
  Engine* engine_ = nullptr;
  int64_t cache_tokens_ = 0;
  uint64_t next_number_ = 1;
  Pins pins_;
};

}  // namespace headrace
