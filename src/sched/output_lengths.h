// How long answers get, from those that ended lately: what one that runs has still to come. For
// admission (admission.h), as in the past-future scheduler (Gong et al., ASPLOS 2025), which learns
// the same distribution. Before any answer has ended each order of magnitude is as likely as
// another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace {

class OutputLengths {
 public:
  // No answer is longer.
  explicit OutputLengths(int32_t length_max);

  // An answer ended by itself or by its limit, with so many tokens.
  void add(int32_t length);
  // Tokens still to come of an answer that has so many: at most this with probability `share`, of
  // (0, 1). Beyond all that were seen: as many again. At least 1. O(log buckets).
  double rest_at(int32_t tokens, double share) const;
  // The mean of the same. O(1).
  double rest_mean(int32_t tokens) const;

 private:
  // Eight buckets to an octave, from length 1 on.
  static constexpr int kPerOctave = 8;
  static constexpr size_t kBuckets = 31 * kPerOctave;
  static constexpr double kRemembered = 1024;  // answers; then all count for half
  static constexpr double kAssumed = 8;        // answers, before any has ended
  static size_t bucket_of(int32_t length);
  size_t first_longer(int32_t tokens) const;
  void sum(size_t last);

  struct Bucket {
    double count = 0, tokens = 0;
  };
  std::array<Bucket, kBuckets> buckets_{};
  // [i]: answers in buckets i and up, and their tokens
  std::array<double, kBuckets + 1> longer_{}, longer_tokens_{};
};

}  // namespace headrace
