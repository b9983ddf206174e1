// An EmbeddingRunner for tests: a vector tells the length and the first and last id of its text,
// and how many of its ids are of a second text. With a head of n classes it is the first n of
// these.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/embedding_engine.h"

namespace headrace {

class FakeEmbeddingRunner final : public EmbeddingRunner {
 public:
  static constexpr TokenId kThrows = 998;  // a pass that has it throws

  explicit FakeEmbeddingRunner(ClassifierHead head = {}) : head_(std::move(head)) {
    CHECK(head_.labels.size() <= 4);
  }

  int32_t dimensions() const override {
    return head_ ? static_cast<int32_t>(head_.labels.size()) : 4;
  }
  int32_t vocab_size() const override { return 1000; }
  int32_t length_max() const override { return 16; }
  bool normalises() const override { return true; }
  const ClassifierHead& head() const override { return head_; }

  bool run(const EncoderBatch& batch, std::span<float> vectors,
           const std::function<bool()>& go_on) override {
    const auto [tokens, sequences, second_rows] = batch;
    {
      const std::lock_guard lock(mutex_);
      passes_.push_back(sequences.size());
      std::vector<TokenId>& ids = first_ids_.emplace_back();
      for (const RowSequence& sequence : sequences) {
        ids.push_back(tokens[static_cast<size_t>(sequence.row_first)]);
      }
    }
    if (std::ranges::find(tokens, kThrows) != tokens.end()) throw std::bad_alloc();
    while (paused) {
      if (advances && !go_on()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (size_t s = 0; s < sequences.size(); ++s) {
      const auto first = static_cast<size_t>(sequences[s].row_first);
      const auto count = static_cast<size_t>(sequences[s].row_count);
      const TokenSpan text = tokens.subspan(first, count);
      const float marker = text.front() == 999 ? __builtin_nanf("") : 0.0f;
      const float values[] = {static_cast<float>(count), static_cast<float>(text.front()),
                              static_cast<float>(text.back()),
                              marker + static_cast<float>(second_rows[s])};
      const auto width = static_cast<size_t>(dimensions());
      std::copy_n(values, width, vectors.data() + width * s);
    }
    return true;
  }

  std::vector<size_t> passes() const {  // texts of each
    const std::lock_guard lock(mutex_);
    return passes_;
  }

  // Of the texts of a pass.
  std::vector<TokenId> first_ids(size_t pass) const {
    const std::lock_guard lock(mutex_);
    return first_ids_.at(pass);
  }

  std::atomic<bool> paused{false};
  std::atomic<bool> advances{false};  // a pass that is paused asks whether to go on

 private:
  const ClassifierHead head_;
  mutable std::mutex mutex_;
  std::vector<size_t> passes_;
  std::vector<std::vector<TokenId>> first_ids_;
};

}  // namespace headrace
