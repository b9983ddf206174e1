#include "engine/device_sampler.h"

#include <algorithm>
#include <limits>

#include "base/rng.h"

namespace headrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t tops_offset(int64_t rows) {
  const auto bytes = rows * static_cast<int64_t>(sizeof(DeviceSampleResult));
  return (bytes + StepArena::kAlignment - 1) / StepArena::kAlignment * StepArena::kAlignment;
}
int64_t result_bytes(int64_t rows, int64_t tops) {
  return tops_offset(rows) + tops * static_cast<int64_t>(sizeof(DeviceTopLogprob));
}

TokenLogprobs logprobs_of(const DeviceSampleRow& row, const DeviceSampleResult& result,
                          const DeviceTopLogprob* tops) {
  TokenLogprobs logprobs{.token = result.token, .logprob = result.logprob};
  for (int32_t i = 0; i < row.logprobs && tops[row.top_first + i].token >= 0; ++i) {
    const DeviceTopLogprob& top = tops[row.top_first + i];
    logprobs.top.emplace_back(top.token, top.logprob);
  }
  return logprobs;
}

}  // namespace

// ---- results ---------------------------------------------------------------------------------

Result<SampleResults> SampleResults::create(Device& device, int64_t rows, int64_t tops) {
  SampleResults results(device);
  HR_RETURN_IF_ERROR(results.allocate(result_bytes(rows, tops)));
  return results;
}

Status SampleResults::allocate(int64_t bytes) {
  HR_ASSIGN_OR_RETURN(device_, allocator_->allocate(bytes));
  HR_ASSIGN_OR_RETURN(host_, allocator_->allocate_host(bytes));
  return ok_status();
}

Status SampleResults::reserve(Stream& stream, int64_t rows, int64_t tops) {
  row_count_ = rows;
  tops_first_ = tops_offset(rows);
  used_ = result_bytes(rows, tops);
  if (used_ <= device_.size()) return ok_status();
  HR_RETURN_IF_ERROR(stream.synchronize());
  return allocate(2 * used_);
}

void SampleResults::copy_out(Stream& stream) {
  if (row_count_ > 0) stream.copy_out(host_.data(), device_.data(), used_);
}

std::span<const DeviceSampleResult> SampleResults::host_rows() const {
  return {reinterpret_cast<const DeviceSampleResult*>(host_.data()),
          static_cast<size_t>(row_count_)};
}

// ---- rows ------------------------------------------------------------------------------------

void DeviceSampler::build(std::span<const LogitRow> rows, const SlotTable& slots) {
  rows_.clear();
  biases_.clear();
  top_count_ = 0;
  penalises_ = false;
  for (const LogitRow& row : rows) add_row(row, slots[row.slot]);
}

void DeviceSampler::add_row(const LogitRow& logit_row, const Slot& slot) {
  const SamplingParams& sampling = slot.request->sampling;
  const auto length = static_cast<uint64_t>(slot.length());
  DeviceSampleRow row{
      .temperature = sampling.temperature,
      .top_p = sampling.top_p,
      .min_p = sampling.min_p,
      .repetition_penalty = sampling.repetition_penalty,
      .presence_penalty = sampling.presence_penalty,
      .frequency_penalty = sampling.frequency_penalty,
      .top_k = sampling.top_k,
      .logprobs = logit_row.samples ? sampling.logprobs : sampling.prompt_logprobs,
      .random = counter_hash(sampling.seed.value_or(0), static_cast<uint64_t>(slot.choice), length,
                             RngPurpose::kSample),
      .slot = logit_row.slot.value,
      .scored = logit_row.samples ? -1 : logit_row.scored,
      .bias_first = static_cast<int32_t>(biases_.size()),
      .bias_count = 0,
      .top_first = static_cast<int32_t>(top_count_),
      .penalises = logit_row.samples && counts_outputs(sampling) ? 1 : 0};
  row.logprobs = std::min({row.logprobs, kDeviceTopMax, vocab_size_});
  if (logit_row.samples) add_biases(slot, row);
  top_count_ += std::max(row.logprobs, 0);
  penalises_ = penalises_ || row.penalises != 0;
  rows_.push_back(row);
}

// Each token once: entries of a row are changed by different threads.
void DeviceSampler::add_biases(const Slot& slot, DeviceSampleRow& row) {
  const SamplingParams& sampling = slot.request->sampling;
  const auto add = [&](TokenId token, float bias) {
    const auto first = biases_.begin() + row.bias_first;
    const auto found = std::find_if(first, biases_.end(),
                                    [&](const DeviceLogitBias& b) { return b.token == token; });
    if (found != biases_.end()) {
      found->bias += bias;
    } else {
      biases_.push_back({.token = token, .bias = bias});
    }
  };
  for (const auto& [token, bias] : sampling.logit_bias) add(token, bias);
  if (slot.length() - slot.prompt_length < sampling.min_tokens) {
    if (!sampling.ignore_eos) {
      for (const TokenId token : end_ids_) add(token, -kInfinity);
    }
    for (const TokenId token : sampling.stop_token_ids) add(token, -kInfinity);
  }
  row.bias_count = static_cast<int32_t>(biases_.size()) - row.bias_first;
}

StepResult DeviceSampler::collect(std::span<const LogitRow> logit_rows,
                                  std::span<const DeviceSampleRow> rows,
                                  const SampleResults& results) {
  StepResult step;
  const std::span<const DeviceSampleResult> sampled = results.host_rows();
  for (size_t i = 0; i < logit_rows.size(); ++i) {
    if (step.rows.empty() || step.rows.back().sequence != logit_rows[i].sequence) {
      step.rows.push_back({.sequence = logit_rows[i].sequence});
    }
    StepResult::Row& out = step.rows.back();
    out.fault = out.fault || sampled[i].fault != 0;
    if (!logit_rows[i].samples) {
      out.prompt_logprobs.push_back(logprobs_of(rows[i], sampled[i], results.host_tops()));
      continue;
    }
    out.accepted.push_back(sampled[i].token);
    if (rows[i].logprobs >= 0) {
      out.logprobs.push_back(logprobs_of(rows[i], sampled[i], results.host_tops()));
    }
  }
  return step;
}

}  // namespace headrace
