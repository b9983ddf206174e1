// Counter-based random numbers: a pure function of (seed, counters, purpose), so that a draw never
// depends on the batch, the order of requests or the machine. Mixing: splitmix64 finaliser
// (Steele, Lea, Flood, OOPSLA 2014), applied once per word.
#pragma once

#include <cstdint>

namespace headrace {

enum class RngPurpose : uint64_t {
  kSample = 1,
  kDummyWeight = 2,
  kSimulation = 3,
  kAcceptance = 4,
  kExclusion = 5
};

constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// 64 random bits for (seed, choice, position, purpose); its half that does not change with the
// position, and the other.
constexpr uint64_t counter_stream(uint64_t seed, uint64_t choice) {
  return mix64(mix64(seed) ^ choice);
}
constexpr uint64_t counter_hash_at(uint64_t stream, uint64_t position, RngPurpose purpose) {
  return mix64(mix64(stream ^ position) ^ static_cast<uint64_t>(purpose));
}
constexpr uint64_t counter_hash(uint64_t seed, uint64_t choice, uint64_t position,
                                RngPurpose purpose) {
  return counter_hash_at(counter_stream(seed, choice), position, purpose);
}

// Uniform in [0, 1), 53 bits.
constexpr double uniform01(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// A small sequential generator for tests and simulations: same seed, same run.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(mix64(seed)) {}
  uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15ull); }
  // Uniform in [0, bound). REQUIRES: bound > 0
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  // Uniform in [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
  }
  double uniform() { return uniform01(next()); }

 private:
  uint64_t state_;
};

}  // namespace headrace
