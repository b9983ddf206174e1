#include "sched/output_lengths.h"

#include <algorithm>
#include <bit>

namespace headrace {

OutputLengths::OutputLengths(int32_t length_max) {
  const size_t count = bucket_of(length_max) + 1;
  for (size_t i = 0; i < count; ++i) {
    const double length = static_cast<double>((kPerOctave + i % kPerOctave) << (i / kPerOctave));
    const double weight = kAssumed / static_cast<double>(count);
    buckets_[i] = {weight, weight * std::max(1.0, length / kPerOctave)};
  }
  sum(kBuckets - 1);
}

// The octave, and the three bits below the highest.
size_t OutputLengths::bucket_of(int32_t length) {
  const auto value = static_cast<uint32_t>(std::max(1, length));
  const int octave = std::bit_width(value) - 1;
  const auto part = static_cast<size_t>((uint64_t{value} * kPerOctave) >> octave);
  return static_cast<size_t>(octave * kPerOctave) + part - kPerOctave;
}

void OutputLengths::add(int32_t length) {
  const bool halves = longer_[0] >= kRemembered;
  if (halves) {
    for (Bucket& bucket : buckets_) bucket = {bucket.count / 2, bucket.tokens / 2};
  }
  const size_t at = bucket_of(length);
  buckets_[at].count += 1;
  buckets_[at].tokens += std::max(1, length);
  sum(halves ? kBuckets - 1 : at);
}

// Of the buckets up to `last`; what is longer has not changed.
void OutputLengths::sum(size_t last) {
  for (size_t i = last + 1; i-- > 0;) {
    longer_[i] = longer_[i + 1] + buckets_[i].count;
    longer_tokens_[i] = longer_tokens_[i + 1] + buckets_[i].tokens;
  }
}

// The first bucket of answers that are longer: of those of about that length, all or none are.
size_t OutputLengths::first_longer(int32_t tokens) const {
  const size_t own = bucket_of(tokens);
  return buckets_[own].tokens <= buckets_[own].count * tokens ? own + 1 : own;
}

double OutputLengths::rest_mean(int32_t tokens) const {
  const size_t first = first_longer(tokens);
  if (longer_[first] <= 0) return std::max(1, tokens);
  return std::max(1.0, longer_tokens_[first] / longer_[first] - tokens);
}

double OutputLengths::rest_at(int32_t tokens, double share) const {
  const size_t first = first_longer(tokens);
  if (longer_[first] <= 0) return std::max(1, tokens);
  // The last bucket that so many of them reach.
  const double reach = (1 - share) * longer_[first];
  const auto at = std::partition_point(longer_.begin() + static_cast<ptrdiff_t>(first),
                                       longer_.end(), [&](double each) { return each >= reach; });
  const Bucket& bucket = buckets_[static_cast<size_t>(at - longer_.begin()) - 1];
  return std::max(1.0, bucket.tokens / bucket.count - tokens);
}

}  // namespace headrace
