// Which models fit in this machine, and how fast they can be at most: each token of an answer reads
// all weights that compute it, and memory is read at a rate that is measured.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace headrace {

struct KnownModel {
  std::string_view name;  // of Ollama's registry: 'headrace pull' takes it
  double gigabytes;       // of its file, about: the registry was not asked
  double active_share;    // of the weights, how much a token reads; 1 but for mixtures of experts
  std::string_view words;
};

// By size. Architectures that this program runs.
std::span<const KnownModel> known_models();

struct MachineRates {
  int64_t free_bytes = 0;       // of memory
  double bytes_per_second = 0;  // that all threads read
};

enum class Fit { kFast, kSlow, kNot };

class Recommendation {
 public:
  // `active_share` as above.
  Recommendation(std::string name, int64_t bytes, double active_share, const MachineRates& machine);
  const std::string& name() const { return name_; }
  int64_t bytes() const { return bytes_; }
  // Weights, a tenth of them, and half a gigabyte for keys, values and the program.
  int64_t memory_bytes() const { return bytes_ + bytes_ / 10 + kBesideBytes; }
  double tokens_per_second() const { return tokens_per_second_; }  // at most
  // kFast: faster than people read.
  Fit fit() const { return fit_; }

 private:
  static constexpr int64_t kBesideBytes = 500'000'000;
  std::string name_;
  int64_t bytes_;
  double tokens_per_second_;
  Fit fit_;
};

// The largest that is fast, else the largest that fits; null: none.
const Recommendation* best_of(const std::vector<Recommendation>& models);

std::string recommendations_text(const std::vector<Recommendation>& models,
                                 const MachineRates& machine);
Json recommendations_json(const std::vector<Recommendation>& models, const MachineRates& machine);

}  // namespace headrace
