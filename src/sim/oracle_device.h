// A fake device that executes StepPlans on hashes instead of tensors. For tests.
//
// A KV cell holds a hash chain of (salt and the rest of its prefix key, tokens so far, position),
// written and read back through the real block tables; the next token is a function of the chain.
// So any wrong, stale, shared or lost page changes a token, and every test of scheduler, cache and
// preemption is an exact comparison with oracle_next_token(), which knows nothing of pages.
//
// Where sequences keep states, a slot holds the chain of the tokens that its work has gone through:
// a state that is stale, of another sequence or of another length changes a token as well.
//
// It keeps its own slots and tables from the plans alone, as a real device does, and poisons a page
// when it is given to a sequence. Pages of lower tiers are poisoned when they have been loaded, and
// what a step loads is there when all its work is done. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "base/logprobs.h"
#include "base/rng.h"
#include "kv/kv_group.h"
#include "sched/request.h"
#include "sched/step_plan.h"

namespace headrace {

struct OracleModel {
  int32_t vocab_size = 1000;
  TokenId end_id = 0;
  double end_probability = 0;  // of the end id at each position; otherwise any other token
};

// Reads a sequence token by token: what follows it depends on its prefix key and tokens alone.
class OracleChain {
 public:
  OracleChain(const Request& request, TokenSpan tokens);
  void append(TokenId token);
  int32_t length() const { return length_; }  // tokens read
  // The next token of choice `choice` of a request with this seed.
  TokenId next_token(const OracleModel& model, uint64_t seed, int32_t choice) const;
  // Log-probabilities of `token` as the next, with the `top` best: echo gives the same as
  // generation.
  TokenLogprobs logprobs(const OracleModel& model, TokenId token, int32_t top) const;

 private:
  uint64_t hash_;
  int32_t length_ = 0;
};

// The next token of choice `choice` of a request with this salt and seed, after `tokens` (prompt
// and output so far). Pure.
TokenId oracle_next_token(const OracleModel& model, const Request& request, int32_t choice,
                          TokenSpan tokens);

class OracleDevice {
 public:
  // `state_checkpoints` as SchedulerOptions has it.
  OracleDevice(OracleModel model, std::vector<KvGroupSpec> groups, int32_t block_count,
               int32_t slot_count, const std::vector<TierSpec>& tiers = {},
               std::optional<int32_t> state_checkpoints = {});
  ~OracleDevice();

  // The device is one with a draft model: of the tokens that a work has to be drafted it proposes
  // from none to all, each the right one with this probability; of a tree in its form.
  void set_drafts(uint64_t seed, double right) { drafts_ = Drafts{seed, right}; }

  // Computes a step. Steps come in order. A plan that no device could execute (an unknown slot, a
  // token without a page, an occupied slot) is a CHECK.
  StepResult execute(const StepPlan& plan);

  // The choice's next row (scored or sampled) is NaN.
  void inject_fault(RequestId request, int32_t choice) { faults_.insert({request, choice}); }

  // The last step that read or wrote a page: the scheduler must not give it to another before that
  // step was applied.
  Ticket last_touch(BlockId block) const {
    return last_touch_.at(static_cast<size_t>(block.value));
  }
  // The last step that wrote a page: nobody may find it before that step was applied.
  Ticket last_write(BlockId block) const {
    return last_write_.at(static_cast<size_t>(block.value));
  }
  // Every sampled row read back a chain that was not what it had written: 0 unless pages were
  // mixed up. (Each also shows as a wrong token.)
  uint64_t mismatches() const { return mismatches_; }

 private:
  struct Slot;
  struct Drafts {
    uint64_t seed = 0;
    double right = 0;
  };
  void update_slots(const StepPlan& plan);
  void admit(const Admission& admission);
  void add_blocks(Slot& slot, const GroupBlocks& blocks, bool fresh);
  void copy_page(const BlockCopy& copy);
  void move_page(const PageMove& move);
  std::span<uint64_t> tier_page(TierPage place);
  void compute(const Work& work);
  void compute_proposals(const Work& work);
  void advance_state(const Work& work);
  uint64_t read_back(const Work& work, int32_t proposal = TokenTree::kBeforeAll);
  void score(const Work& work, const Slot& slot, StepResult::Row& row);
  void sample(SlotId slot, uint64_t chain, StepResult::Row& row);
  void verify(const Work& work, StepResult::Row& row);
  void move_accepted(const Slot& slot, size_t known, const std::vector<int32_t>& path);
  void propose_tree(Work& work, const OracleChain& known, int32_t count, Rng& rng);
  StepPlan with_drafts(const StepPlan& plan, StepResult::Drafting& drafting);
  uint64_t* page(int32_t group, int32_t block) {
    CHECK(group >= 0 && static_cast<size_t>(group) < groups_.size());
    CHECK(block >= 0 && static_cast<size_t>(block) < last_touch_.size());
    return cells_.data() + static_cast<size_t>(block) * static_cast<size_t>(page_cells_);
  }
  std::span<uint64_t> cells_from(const Slot& slot, size_t group, int32_t position);

  const OracleModel model_;
  const std::vector<KvGroupSpec> groups_;
  int32_t page_cells_ = 0;                         // of the group with the largest pages
  std::vector<uint64_t> cells_;                    // [blocks][page_cells]
  std::vector<std::vector<uint64_t>> tier_cells_;  // [lower tiers][pages][page_cells]
  bool keeps_states_ = false;
  std::vector<uint64_t> states_;       // [slots]
  std::vector<uint64_t> checkpoints_;  // [checkpoints]
  std::vector<Ticket> last_touch_, last_write_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::set<std::pair<RequestId, int32_t>> faults_;
  Ticket step_;
  uint64_t mismatches_ = 0;
  std::optional<Drafts> drafts_;
};

}  // namespace headrace
