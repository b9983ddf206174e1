// ClassifierHead: what a model of sequence classification says of its numbers, one a class. With
// one class it is a cross-encoder, whose number is the score of a pair of texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

// What makes an answer's numbers of logits.
enum class ScoreActivation : uint8_t {
  kIdentity,
  kSigmoid,  // of each by itself
  kSoftmax,  // over all classes
};

struct ClassifierHead {
  std::vector<std::string> labels;                      // by class; empty: the model has no head
  ScoreActivation classes = ScoreActivation::kSoftmax;  // of a text's classes
  ScoreActivation score = ScoreActivation::kSigmoid;    // of a pair's score

  explicit operator bool() const { return !labels.empty(); }
  bool scores() const { return labels.size() == 1; }
};

}  // namespace headrace
