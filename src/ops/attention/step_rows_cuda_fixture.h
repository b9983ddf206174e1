// For the tests of ops whose rows attend keys of their own choice, on a GPU: the sequences of a
// step whose blocks lie anywhere, for the CPU's ops and as a plan on the device.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "ops/attention/plan.h"
#include "ops/cuda_fixture.h"

namespace headrace {

// Rows and keys of a sequence: the rows are its last ones.
using StepSequences = std::vector<std::pair<int32_t, int32_t>>;

class StepOnDevice {
 public:
  static constexpr int32_t kBlockTokens = 16;

  // `shape`: what is special; the rest is of latents that list rows.
  StepOnDevice(TestDevice& cuda, AttentionPlanShape shape, const StepSequences& sequences,
               int32_t padding = 0)
      : padding_(padding) {
    for (const auto& [rows, keys] : sequences) {
      first_entries_.push_back(static_cast<int32_t>(tables_.size()));
      tables_.resize(tables_.size() +
                     static_cast<size_t>((keys + kBlockTokens - 1) / kBlockTokens));
      of_cpu_.push_back({.row_first = own_rows_, .row_count = rows, .kv_length = keys});
      own_rows_ += rows;
      longest_ = std::max(longest_, keys);
    }
    for (size_t i = 0; i < tables_.size(); ++i) tables_[i] = static_cast<int32_t>(i);
    Rng rng(11);
    for (size_t i = tables_.size(); i > 1; --i) std::swap(tables_[i - 1], tables_[rng.below(i)]);
    tables_on_device_.emplace(cuda, tables_);
    std::vector<AttentionSequence> of_gpu = of_cpu_;
    for (size_t s = 0; s < of_cpu_.size(); ++s) {
      of_cpu_[s].block_table = tables_.data() + first_entries_[s];
      of_gpu[s].block_table = tables_on_device_->data() + first_entries_[s];
    }
    shape.kv_heads = 1;
    shape.block_tokens = kBlockTokens;
    shape.sm_count = cuda.device().traits().sm_count;
    shape.rows_max = shape.sequences_max = rows();
    shape.latents = shape.lists_rows = true;
    shape.kv_length_max = std::max(shape.kv_length_max, longest_);
    std::vector<std::byte> arena(static_cast<size_t>(attention_plan_bytes(shape)));
    plan_ = plan_attention(shape, of_gpu, arena);
    arena_.emplace(cuda, arena);
    plan_.device = arena_->data();
  }

  int32_t rows() const { return own_rows_ + padding_; }
  int32_t own_rows() const { return own_rows_; }  // but for padding
  int32_t blocks() const { return static_cast<int32_t>(tables_.size()); }
  const std::vector<AttentionSequence>& sequences() const { return of_cpu_; }
  const AttentionPlan& plan() const { return plan_; }

  const AttentionSequence& sequence_of(int32_t row) const {
    return *std::ranges::find_if(of_cpu_, [row](const AttentionSequence& sequence) {
      return row < sequence.row_first + sequence.row_count;
    });
  }
  int32_t seen(int32_t row) const {
    const AttentionSequence& sequence = sequence_of(row);
    return sequence.position(row - sequence.row_first) + 1;
  }
  // Of a key of the row's sequence.
  int64_t slot(int32_t row, int32_t place) const {
    return int64_t{sequence_of(row).block_table[place / kBlockTokens]} * kBlockTokens +
           place % kBlockTokens;
  }

 private:
  const int32_t padding_;
  int32_t own_rows_ = 0, longest_ = 0;
  std::vector<int32_t> tables_, first_entries_;
  std::vector<AttentionSequence> of_cpu_;
  std::optional<CudaArray<int32_t>> tables_on_device_;
  std::optional<CudaArray<std::byte>> arena_;
  AttentionPlan plan_;
};

}  // namespace headrace
