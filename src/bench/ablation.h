// What `bench ablate` can switch off, and what it measures then. A technique is a row of
// ablations(): its cases each run some work with it on and with it off. Off is what one would do
// without it, not a slowed-down copy.
//
// Kernels (K1 to K5) are measured on one loaded model whose kernels are chosen anew between two
// runs; memory and scheduling (C2 to C7, S1 to S8) on two engines of that model with different
// options, or, where a machine would need hours of traffic, by the simulator; ranks (D4) on one
// engine after the other; the router (D1) by its table and the simulator; decoding (X1) on two
// engines.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/op_profile.h"
#include "bench/workload.h"
#include "stack/model_stack.h"

namespace headrace {

// A model whose ops are watched and whose kernels can be chosen between two runs, and engines of
// the same model with other options.
class AblationBench {
 public:
  // Models are loaded when a case first asks for them.
  explicit AblationBench(StackOptions options);

  // ---- the watched model; on the CPU only
  // What takes the place of the best kernels, until it is set again.
  void set_preferred(std::vector<std::string> kernels) { hooks_.preferred = std::move(kernels); }
  void set_unfused(bool unfused) { hooks_.unfused = unfused; }
  // Runs `items` at once on the idle engine. The calls of ops are in profile() then.
  Result<WorkloadResult> run(std::span<const WorkItem> items);
  const std::vector<OpTotal>& profile() const { return totals_; }
  // Whether the last run called a kernel of this name.
  bool ran(std::string_view kernel) const;

  // ---- engines with other options
  using Change = std::function<void(StackOptions&)>;
  // Loaded at the first call with this name, kept until drop_engines().
  Result<ModelStack*> engine(const std::string& name, const Change& change);
  void drop_engines() { engines_.clear(); }
  // The same, with no other beside it.
  Result<ModelStack*> only_engine(const std::string& name, const Change& change) {
    if (!engines_.contains(name)) drop_engines();
    return engine(name, change);
  }

  // Counts from 0; case by case anew. Both sides of a round do the same work: it is its seed.
  void set_round(int32_t round) { round_ = round; }
  uint64_t seed() const { return static_cast<uint64_t>(round_) + 2; }

 private:
  Result<ModelStack*> watched();

  StackOptions options_;
  OpProfile profile_;
  OpHooks hooks_;
  std::unique_ptr<ModelStack> watched_;
  std::map<std::string, std::unique_ptr<ModelStack>> engines_;
  std::vector<OpTotal> totals_;
  int32_t round_ = 0;
};

// What a side came to: seconds unless the case says otherwise. kUnsupported where there is nothing
// that could be switched.
using AblationMeasure = std::function<Result<double>(AblationBench&)>;

struct AblationUnit {
  std::string_view name = "ms";
  double scale = 1e3;  // of what is measured, to print it
  bool more_is_better = false;
};
inline constexpr AblationUnit kMilliseconds = {};
inline constexpr AblationUnit kTokensPerSecond = {"tok/s", 1, true};
inline constexpr AblationUnit kPercent = {"%", 100, false};
inline constexpr AblationUnit kRequestsPerSecond = {"req/s", 1, true};
inline constexpr AblationUnit kSequences = {"sequences", 1, true};
inline constexpr AblationUnit kTimes = {"times", 1};

struct AblationCase {
  std::string name;  // "prompt of 2048 tokens"
  std::string what;  // is measured
  AblationMeasure on, off;
  AblationUnit unit = kMilliseconds;
  bool simulated = false;
};

struct Ablation {
  std::string_view id;         // "K1"
  std::string_view technique;  // one line
  std::string_view off;        // what runs instead
  std::vector<AblationCase> (*cases)();
};

std::span<const Ablation> ablations();
const Ablation* find_ablation(std::string_view id);  // or null

// The cases of the rows, by file.
std::vector<AblationCase> flash_attention_cases();  // ablation_kernels.cc
std::vector<AblationCase> flash_decoding_cases();
std::vector<AblationCase> flat_product_cases();
std::vector<AblationCase> fusion_cases();
std::vector<AblationCase> packed_rows_cases();
std::vector<AblationCase> paged_memory_cases();  // ablation_memory.cc
std::vector<AblationCase> virtual_memory_cases();
std::vector<AblationCase> prefix_cache_cases();
std::vector<AblationCase> tier_cases();
std::vector<AblationCase> batching_cases();  // ablation_scheduling.cc
std::vector<AblationCase> continuous_batching_cases();
std::vector<AblationCase> chunked_prefill_cases();
std::vector<AblationCase> feedback_queue_cases();
std::vector<AblationCase> predicted_length_cases();
std::vector<AblationCase> target_cases();
std::vector<AblationCase> background_cases();
std::vector<AblationCase> overlap_cases();
std::vector<AblationCase> expert_parallel_cases();  // ablation_ranks.cc
std::vector<AblationCase> routed_cases();           // ablation_route.cc, where there is a server
std::vector<AblationCase> resumed_cases();
std::vector<AblationCase> speculation_cases();  // ablation_decoding.cc

// The longest sequence and the most sequences of any case: what the watched model must hold.
inline constexpr int32_t kAblationModelLen = 4200;
inline constexpr int32_t kAblationSequences = 64;
inline constexpr int64_t kAblationKvBytes = int64_t{4} << 30;  // of an engine on a GPU

}  // namespace headrace
