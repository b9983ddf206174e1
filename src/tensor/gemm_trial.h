// GemmTrial: which of several algorithms for one product is the fastest, from timings taken while
// the product runs where it always does. Plain numbers, no device.
#pragma once

#include <vector>

namespace headrace {

class GemmTrial {
 public:
  // REQUIRES: candidates > 0. Candidate 0 is what would be taken without a trial.
  explicit GemmTrial(int candidates);

  // The candidate that has the fewest timings, started ones included.
  int next() const;
  void start(int candidate);                // it runs now, its timing comes later
  void add(int candidate, double seconds);  // of a start()
  // Every candidate has kSamples timings.
  bool complete() const;
  // The candidate of the least median time; 0 unless another is ahead by more than kGain.
  // REQUIRES: complete()
  int best() const;
  double seconds(int candidate) const;  // median; 0: no timing

  static constexpr int kSamples = 8;
  static constexpr double kGain = 0.01;  // less is noise, and candidate 0 is what was tested most

 private:
  struct Candidate {
    int started = 0;
    std::vector<double> seconds;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace headrace
