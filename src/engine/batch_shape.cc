#include "engine/batch_shape.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace headrace {
namespace {

// ---- CPU ----------------------------------------------------------------------------------------

constexpr int32_t kCpuSequences = 64;
// Packed weights below which a step on a CPU has half as many tokens.
constexpr int64_t kSmallModelBytes = int64_t{1} << 30;

// A step of 512 tokens reads the weights less often than one of 256, which is worth 3 % of a prompt
// where they are 2 GB in bf16 and nothing measurable where they are 100 MB, of which its rows would
// be 7 %. A row more costs nearly its share, so that no order of requests ends a job sooner.
BatchShape shape_on_cpu(int64_t weight_bytes) {
  const bool small = weight_bytes < kSmallModelBytes;
  return {.max_num_seqs = kCpuSequences,
          .max_num_batched_tokens = small ? 256 : 512,
          .why = small ? "CPU, less than 1 GiB of weights" : "CPU"};
}

// ---- GPU ----------------------------------------------------------------------------------------

// A slot is worth having where memory holds so many tokens for each: a short chat, and the mean of
// jobs. Pages are shared out as they are needed, so that less would only mean preemption.
constexpr int64_t kServerTokensPerSlot = 256;
constexpr int64_t kJobTokensPerSlot = 512;
constexpr int32_t kSequencesMin = 32;

constexpr int32_t kStepTokens = 8192;
constexpr int32_t kStepTokensMin = 512;
// Of stages, which wait for each other where steps are few and long: a prompt of 32,768 tokens
// passes two of them in 17 turns, of which one is idle.
constexpr int32_t kStagedStepTokens = 2048;
// Of what is left for keys and values, activations of a step take at most this.
constexpr int64_t kStepShare = 8;

// Answers are as good as equally long where the longest is no longer than so many times the mean.
constexpr int64_t kAlikeRatio = 2;
// How much more than its even share a step of a job of declared lengths may hold.
constexpr double kEvenSlack = 1.2;
constexpr int32_t kEvenSequencesMin = 64, kEvenTokensMin = 256;

int32_t rounded_up(double value, int32_t grain) {
  return static_cast<int32_t>(std::min(std::ceil(value / grain), 1e6)) * grain;
}

int32_t sequences_with_room(const BatchShapeInput& input, int64_t tokens_per_slot, int32_t most) {
  const int64_t bytes = std::max<int64_t>(1, input.kv_token_bytes * tokens_per_slot);
  return static_cast<int32_t>(
      std::clamp<int64_t>(input.kv_room_bytes / bytes, kSequencesMin, most));
}

int32_t step_tokens(const BatchShapeInput& input) {
  int32_t tokens = input.stages > 1 ? kStagedStepTokens : kStepTokens;
  while (tokens > kStepTokensMin &&
         tokens * input.step_token_bytes > input.kv_room_bytes / kStepShare) {
    tokens /= 2;
  }
  return tokens;
}

// More sequences than fill a step make tokens slower and throughput little better, and recorded
// steps end there. Each stage has a step of its own.
BatchShape shape_of_server(const BatchShapeInput& input) {
  const int32_t most = kFullStepSequences * input.stages;
  const int32_t sequences = sequences_with_room(input, kServerTokensPerSlot, most);
  return {.max_num_seqs = sequences,
          .max_num_batched_tokens = step_tokens(input),
          .why = sequences < most
                     ? "GPU, by the room for keys and values"
                     : "GPU, as many as read the weights for nothing, within the time of a token"};
}

// All at once as far as there is room: only the end counts, and whoever has a slot later ends
// later.
BatchShape shape_of_job(const BatchShapeInput& input) {
  const auto most = static_cast<int32_t>(
      std::clamp<int64_t>(input.job.requests, kSequencesMin, kJobSequencesMax * input.stages));
  const int32_t sequences = sequences_with_room(input, kJobTokensPerSlot, most);
  return {.max_num_seqs = sequences,
          .max_num_batched_tokens = step_tokens(input),
          .order = input.job.lengths_declared() ? RequestOrder::kDeclared : RequestOrder::kArrival,
          .why = fmt::format("GPU, a job of {} requests, {}", input.job.requests,
                             sequences < most ? "by the room for keys and values" : "all at once")};
}

// The longest answer takes a step for each of its tokens, whatever else is done: so many steps
// there are at least, and the job ends soonest when all of them hold the same, so that none waits
// for the weights and is not full. The longest answers begin first; the rest fills up.
BatchShape shape_of_uneven_job(const BatchShapeInput& input, const BatchShape& at_once) {
  const JobWork& job = input.job;
  const double steps = static_cast<double>(job.longest_output);
  const double sequences = static_cast<double>(job.output_tokens) / steps;
  const double tokens = static_cast<double>(job.output_tokens + job.prompt_tokens) / steps;
  return {
      .max_num_seqs = std::min(at_once.max_num_seqs,
                               std::max(kEvenSequencesMin, rounded_up(kEvenSlack * sequences, 16))),
      .max_num_batched_tokens =
          std::min(at_once.max_num_batched_tokens,
                   std::max(kEvenTokensMin, rounded_up(kEvenSlack * tokens, 128))),
      .order = RequestOrder::kDeclared,
      .why = fmt::format("GPU, a job of {} requests, spread evenly over the {} steps of the "
                         "longest answer",
                         job.requests, job.longest_output)};
}

bool alike(const JobWork& job) {
  return job.longest_output * job.requests <= kAlikeRatio * job.output_tokens;
}

}  // namespace

std::string_view to_string(RequestOrder order) {
  return order == RequestOrder::kDeclared ? "lengths declared" : "order of arrival";
}

BatchShape choose_batch_shape(const BatchShapeInput& input) {
  if (!input.on_gpu) return shape_on_cpu(input.weight_bytes);
  if (input.job.requests == 0) return shape_of_server(input);
  const BatchShape at_once = shape_of_job(input);
  const bool by_stages = input.stages > 1;  // of which a token passes each, a step of its own
  if (!input.job.lengths_declared() || alike(input.job) || by_stages) return at_once;
  return shape_of_uneven_job(input, at_once);
}

}  // namespace headrace
