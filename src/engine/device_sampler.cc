#include "engine/device_sampler.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/rng.h"
#include "engine/form_mask.h"

namespace headrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t result_bytes(int64_t rows, int64_t tops) {
  ArenaPlaces places;
  SampleResultParts::place(places, rows, tops);
  return places.used();
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

// Which of a sequence's tokens leaves the window of its penalties as the one at place `length`
// comes. Of tokens in flight the host knows none, and the device the last.
TokenId leaving_token(const Slot& slot, int32_t length) {
  const int32_t window = slot.request->sampling.penalty_window;
  if (!has_penalty_window(slot.request->sampling) || window > length) return kNoneLeaves;
  const int32_t place = length - window;
  if (static_cast<size_t>(place) < slot.tokens.size()) {
    return slot.tokens[static_cast<size_t>(place)];
  }
  CHECK(place + 1 == length);
  return kLastLeaves;
}

}  // namespace

// ---- results ---------------------------------------------------------------------------------

Result<SampleResults> SampleResults::create(Device& device, int steps, int64_t rows, int64_t tops) {
  SampleResults results(device);
  results.steps_.resize(static_cast<size_t>(steps));
  HR_RETURN_IF_ERROR(results.allocate(result_bytes(rows, tops)));
  return results;
}

Status SampleResults::allocate(int64_t bytes) {
  HR_ASSIGN_OR_RETURN(device_, allocator_->allocate(bytes));
  for (Step& step : steps_) {
    if (step.host.size() >= bytes) continue;
    Buffer before = std::move(step.host);
    HR_ASSIGN_OR_RETURN(step.host, allocator_->allocate_host(bytes));
    // A step in flight has its results there.
    if (before.size() > 0) {
      std::memcpy(step.host.data(), before.data(), static_cast<size_t>(before.size()));
    }
  }
  return ok_status();
}

bool SampleResults::fits(int64_t rows, int64_t tops) const {
  return result_bytes(rows, tops) <= device_.size();
}

Status SampleResults::reserve(Stream& stream, int step, int64_t rows, int64_t tops) {
  Step& reserved = steps_[static_cast<size_t>(step)];
  ArenaPlaces places;
  reserved.parts = SampleResultParts::place(places, rows, tops);
  reserved.used = places.used();
  if (fits(rows, tops)) return ok_status();
  HR_RETURN_IF_ERROR(stream.synchronize());
  return allocate(2 * reserved.used);
}

DeviceTopLogprob* SampleResults::tops(int64_t row_count) const {
  ArenaPlaces places;
  return SampleResultParts::place(places, row_count, 0).tops.in(device_.data());
}

void SampleResults::copy_out(Stream& stream, int step) {
  if (step_at(step).parts.rows.count == 0) return;
  stream.copy_out(step_at(step).host.data(), device_.data(), step_at(step).used);
}

std::span<const DeviceSampleResult> SampleResults::host_rows(int step) const {
  const ArenaPart<DeviceSampleResult> rows = step_at(step).parts.rows;
  return {rows.in(step_at(step).host.data()), rows.count};
}

const DeviceTopLogprob* SampleResults::host_tops(int step) const {
  return step_at(step).parts.tops.in(step_at(step).host.data());
}

// ---- rows ------------------------------------------------------------------------------------

void DeviceSampler::build(std::span<const LogitRow> rows, const SlotTable& slots,
                          std::vector<DeviceSampleRow>& out) {
  biases_.clear();
  top_count_ = 0;
  mask_count_ = 0;
  penalises_ = false;
  out.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Slot& slot = slots[rows[i].slot];
    DeviceSampleRow& row = out[i];
    if (rows[i].samples) {
      const Drawn& common = drawn(rows[i], slot);
      const int32_t length = slot.length() + rows[i].ahead;
      row = common.row;
      row.random =
          counter_hash_at(common.stream, static_cast<uint64_t>(length), RngPurpose::kSample);
      row.bias_first = static_cast<int32_t>(biases_.size());
      if (length < common.biased_until) add_biases(slot, length, row);
      if (row.penalises != 0) row.leaves = leaving_token(slot, length);
      if (slot.matcher != nullptr) row.mask = mask_count_++;
    } else {
      row = common_row(rows[i], slot);
      row.bias_first = static_cast<int32_t>(biases_.size());
    }
    row.top_first = static_cast<int32_t>(top_count_);
    top_count_ += std::max(row.logprobs, 0);
    penalises_ = penalises_ || row.penalises != 0;
  }
}

// But for what changes from step to step.
DeviceSampleRow DeviceSampler::common_row(const LogitRow& logit_row, const Slot& slot) const {
  const SamplingParams& sampling = slot.request->sampling;
  const int32_t logprobs = logit_row.samples ? sampling.logprobs : sampling.prompt_logprobs;
  return {.temperature = sampling.temperature,
          .top_p = sampling.top_p,
          .min_p = sampling.min_p,
          .repetition_penalty = sampling.repetition_penalty,
          .presence_penalty = sampling.presence_penalty,
          .frequency_penalty = sampling.frequency_penalty,
          .top_k = sampling.top_k,
          .logprobs = std::min({logprobs, kDeviceTopMax, vocab_size_}),
          .random = 0,
          .slot = logit_row.slot.value,
          .scored = logit_row.samples ? -1 : logit_row.scored,
          .bias_first = 0,
          .bias_count = 0,
          .top_first = 0,
          .penalises = logit_row.samples && penalises_tokens(sampling) ? 1 : 0};
}

// Made once for a sequence in a slot: a request's parameters do not change.
DeviceSampler::Drawn& DeviceSampler::drawn(const LogitRow& row, const Slot& slot) {
  Drawn& drawn = drawn_.at(static_cast<size_t>(row.slot.value));
  if (drawn.sequence == slot.sequence) return drawn;
  const SamplingParams& sampling = slot.request->sampling;
  drawn = {.sequence = slot.sequence,
           .stream = counter_stream(sampling.seed.value_or(0), static_cast<uint64_t>(slot.choice)),
           .biased_until = sampling.logit_bias.empty() ? slot.prompt_length + sampling.min_tokens
                                                       : std::numeric_limits<int32_t>::max(),
           .row = common_row(row, slot)};
  return drawn;
}

// Each token once: entries of a row are changed by different threads.
void DeviceSampler::add_biases(const Slot& slot, int32_t length, DeviceSampleRow& row) {
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
  // Of an answer with a form its mask says so.
  if (slot.matcher == nullptr) {
    for_each_early_end(sampling, end_ids_, length - slot.prompt_length,
                       [&](TokenId token) { add(token, -kInfinity); });
  }
  row.bias_count = static_cast<int32_t>(biases_.size()) - row.bias_first;
}

DeviceSampleRow DeviceSampler::padding(SlotId slot) {
  return {.temperature = 0.0f,
          .top_p = 1.0f,
          .min_p = 0.0f,
          .repetition_penalty = 1.0f,
          .presence_penalty = 0.0f,
          .frequency_penalty = 0.0f,
          .top_k = 0,
          .logprobs = -1,
          .random = 0,
          .slot = slot.value,
          .scored = -1,
          .bias_first = 0,
          .bias_count = 0,
          .top_first = 0,
          .penalises = 0};
}

StepResult DeviceSampler::collect(std::span<const LogitRow> logit_rows,
                                  std::span<const DeviceSampleRow> rows,
                                  std::span<const DeviceSampleResult> results,
                                  const DeviceTopLogprob* tops,
                                  const std::vector<bool>& dead_ends) {
  StepResult step;
  for (size_t i = 0; i < logit_rows.size(); ++i) {
    if (step.rows.empty() || step.rows.back().sequence != logit_rows[i].sequence) {
      step.rows.push_back({.sequence = logit_rows[i].sequence});
    }
    StepResult::Row& out = step.rows.back();
    const bool dead_end = rows[i].mask >= 0 && dead_ends[static_cast<size_t>(rows[i].mask)];
    out.dead_end = out.dead_end || dead_end;
    out.fault = out.fault || (results[i].fault != 0 && !dead_end);
    if (!logit_rows[i].samples) {
      out.prompt_logprobs.push_back(logprobs_of(rows[i], results[i], tops));
      continue;
    }
    out.accepted.push_back(results[i].token);
    if (rows[i].logprobs >= 0) out.logprobs.push_back(logprobs_of(rows[i], results[i], tops));
  }
  return step;
}

}  // namespace headrace
