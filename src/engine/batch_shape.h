// BatchShape: how many sequences run at once, how many tokens a step has and whose turn it is
// first, where no flag says so: by the machine and the work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

// A job: requests that are all there before the first one runs. Lengths are given where they are
// known, as a benchmark's are; max_tokens of a request that may end before it is no length.
struct JobWork {
  int64_t requests = 0;                          // 0: no job, requests come as they come
  int64_t prompt_tokens = 0, output_tokens = 0;  // of all
  int64_t longest_output = 0;                    // 0: lengths are not known

  bool lengths_declared() const { return longest_output > 0; }
};

// Most sequences of a job at once.
inline constexpr int32_t kJobSequencesMax = 1024;
// A GPU reads its weights in the time in which it computes some 200 to 300 rows: of a step of so
// many sequences.
inline constexpr int32_t kFullStepSequences = 256;

enum class RequestOrder {
  kArrival,   // as they came
  kDeclared,  // the longest answer first
};
// "order of arrival", "lengths declared".
std::string_view to_string(RequestOrder order);

struct BatchShapeInput {
  bool on_gpu = false;
  int64_t weight_bytes = 0;
  int64_t kv_token_bytes = 0;    // that a token takes of the pool
  int64_t kv_room_bytes = 0;     // of a GPU: what is left for them, activations counted
  int64_t step_token_bytes = 0;  // of a GPU: activations of a token of a step
  int32_t stages = 1;            // GPUs that the layers are shared out over, each at a step
  JobWork job;
};

struct BatchShape {
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  RequestOrder order = RequestOrder::kArrival;
  std::string why;  // a few words for the line that tells it
};

BatchShape choose_batch_shape(const BatchShapeInput& input);

}  // namespace headrace
