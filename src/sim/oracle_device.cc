#include "sim/oracle_device.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"

namespace headrace {
namespace {

constexpr uint64_t kPoison = 0xdeadbeefdeadbeefull;
constexpr double kSecondsPerPass = 0.0001;  // of a draft model

uint64_t chain_start(const Request& request) {
  uint64_t hash = 0x6865616472616365ull;
  for (char c : request.cache_salt) hash = mix64(hash ^ static_cast<unsigned char>(c));
  for (const uint64_t id : {request.adapter, request.arithmetic}) {
    if (id != 0) hash = mix64(hash ^ mix64(id));
  }
  return hash;
}

uint64_t chain_next(uint64_t before, TokenId token, int32_t position) {
  return mix64(before ^
               mix64((static_cast<uint64_t>(position) << 32) | static_cast<uint32_t>(token)));
}

TokenId draw(const OracleModel& model, uint64_t chain, uint64_t seed, int32_t choice) {
  const uint64_t bits =
      counter_hash(seed, static_cast<uint64_t>(choice), chain, RngPurpose::kSample);
  if (uniform01(bits) < model.end_probability) return model.end_id;
  const auto token =
      static_cast<TokenId>(mix64(bits) % static_cast<uint64_t>(model.vocab_size - 1));
  return token < model.end_id ? token : token + 1;
}

// Tokens are ranked by their distance from one that the chain picks.
TokenLogprobs rank_token(const OracleModel& model, uint64_t chain, TokenId token, int32_t top) {
  const auto best =
      static_cast<TokenId>(mix64(chain ^ 1) % static_cast<uint64_t>(model.vocab_size));
  const auto logprob = [&](TokenId id) {
    const int32_t rank = (id - best + model.vocab_size) % model.vocab_size;
    return -0.5f - 0.0625f * static_cast<float>(rank);
  };
  TokenLogprobs out{.token = token, .logprob = logprob(token), .top = {}};
  for (int32_t i = 0; i < std::min(top, model.vocab_size); ++i) {
    const TokenId id = (best + i) % model.vocab_size;
    out.top.emplace_back(id, logprob(id));
  }
  return out;
}

}  // namespace

OracleChain::OracleChain(const Request& request, TokenSpan tokens) : hash_(chain_start(request)) {
  for (TokenId token : tokens) append(token);
}

void OracleChain::append(TokenId token) { hash_ = chain_next(hash_, token, length_++); }

TokenId OracleChain::next_token(const OracleModel& model, uint64_t seed, int32_t choice) const {
  return draw(model, hash_, seed, choice);
}

TokenLogprobs OracleChain::logprobs(const OracleModel& model, TokenId token, int32_t top) const {
  return rank_token(model, hash_, token, top);
}

TokenId oracle_next_token(const OracleModel& model, const Request& request, int32_t choice,
                          TokenSpan tokens) {
  const OracleChain chain(request, tokens);
  return chain.next_token(model, request.sampling.seed.value_or(0), choice);
}

struct OracleDevice::Slot {
  SequenceId sequence;
  int32_t choice = 0;
  std::shared_ptr<const Request> request;
  std::vector<TokenId> tokens;               // prompt, then output
  std::vector<uint64_t> chain;               // [tokens] what the cells must read back as
  std::vector<uint64_t> proposed;            // the same of a step's proposals
  std::vector<std::vector<int32_t>> tables;  // per group; -1 = no page

  void append(TokenId token) {
    const uint64_t before = chain.empty() ? chain_start(*request) : chain.back();
    chain.push_back(chain_next(before, token, static_cast<int32_t>(tokens.size())));
    tokens.push_back(token);
  }
};

OracleDevice::OracleDevice(OracleModel model, std::vector<KvGroupSpec> groups, int32_t block_count,
                           int32_t slot_count, const std::vector<TierSpec>& tiers,
                           std::optional<int32_t> state_checkpoints)
    : model_(model),
      groups_(std::move(groups)),
      keeps_states_(state_checkpoints.has_value()),
      states_(static_cast<size_t>(slot_count), kPoison),
      checkpoints_(static_cast<size_t>(state_checkpoints.value_or(0)), kPoison) {
  CHECK(model_.vocab_size >= 2);
  for (const KvGroupSpec& group : groups_) page_cells_ = std::max(page_cells_, group.block_tokens);
  cells_.assign(static_cast<size_t>(block_count) * static_cast<size_t>(page_cells_), kPoison);
  for (const TierSpec& tier : tiers) {
    tier_cells_.emplace_back(static_cast<size_t>(tier.pages) * static_cast<size_t>(page_cells_),
                             kPoison);
  }
  last_touch_.resize(static_cast<size_t>(block_count));
  last_write_.resize(static_cast<size_t>(block_count));
  slots_.resize(static_cast<size_t>(slot_count));
}

OracleDevice::~OracleDevice() = default;

// Of the form, or any as deep and as wide as may be: behind any token of it the right one by the
// same law, else any that its siblings are not.
void OracleDevice::propose_tree(Work& work, const OracleChain& known, int32_t count, Rng& rng) {
  const Slot& slot = *slots_[static_cast<size_t>(work.slot.value)];
  const DraftForm& form = work.form;
  TokenTree& proposed = work.proposed;
  std::vector<OracleChain> chains;
  std::vector<int32_t> in_form;  // [proposed]
  for (int32_t i = 0; i < count; ++i) {
    const auto parent = static_cast<int32_t>(rng.between(-1, proposed.size() - 1));
    const bool first = parent == TokenTree::kBeforeAll;
    if (!first && proposed.depth(parent) + 1 == form.depth) continue;
    const int32_t children = proposed.child_count(parent);
    int32_t at = TokenTree::kBeforeAll;
    if (!form.ranks.empty()) {
      at = form.ranks.child(first ? parent : in_form[static_cast<size_t>(parent)], children);
      if (at == TokenTree::kBeforeAll) continue;
    }
    if (children == form.width) continue;
    OracleChain chain = first ? known : chains[static_cast<size_t>(parent)];
    TokenId token = chain.next_token(model_, slot.request->sampling.seed.value_or(0), slot.choice);
    if (rng.uniform() >= drafts_->right) {
      token = static_cast<TokenId>(rng.below(static_cast<uint64_t>(model_.vocab_size)));
    }
    if (proposed.child(parent, token) != TokenTree::kBeforeAll) continue;
    chain.append(token);
    chains.push_back(chain);
    proposed.tokens.push_back(token);
    proposed.parents.push_back(parent);
    in_form.push_back(at);
  }
  proposed.forget_parents_of_chain();
}

// The plan with the tokens that it has to be drafted.
StepPlan OracleDevice::with_drafts(const StepPlan& plan, StepResult::Drafting& drafting) {
  StepPlan drafted = plan;
  for (Work& work : drafted.work) {
    if (work.drafted == 0) continue;
    const Slot& slot = *slots_[static_cast<size_t>(work.slot.value)];
    CHECK_MSG(
        work.proposed.empty() && work.first + work.count - work.drafted == std::ssize(slot.tokens),
        "a draft begins behind the last known token");
    OracleChain chain(*slot.request, slot.tokens);
    Rng rng(mix64(drafts_->seed ^ mix64(static_cast<uint64_t>(work.sequence.value))) ^
            static_cast<uint64_t>(slot.tokens.size()));
    const auto count = static_cast<int32_t>(rng.between(0, work.drafted));
    if (!work.form.is_chain()) propose_tree(work, chain, count, rng);
    for (int32_t i = 0; work.form.is_chain() && i < count; ++i) {
      TokenId token =
          chain.next_token(model_, slot.request->sampling.seed.value_or(0), slot.choice);
      if (rng.uniform() >= drafts_->right) token = (token + 1) % model_.vocab_size;
      work.proposed.tokens.push_back(token);
      chain.append(token);
    }
    const int32_t passes = work.form.is_chain() ? count : std::min(count, work.form.depth);
    drafting.passes = std::max(drafting.passes, passes);
    drafting.rows += count;
    work.count -= work.drafted - work.proposed.size();
    work.drafted = 0;
  }
  drafting.seconds = kSecondsPerPass * drafting.passes;
  return drafted;
}

StepResult OracleDevice::execute(const StepPlan& plan) {
  step_ = Ticket(plan.step);
  for (const PageMove& store : plan.stores) move_page(store);
  for (const PageMove& load : plan.loads) {
    CHECK(load.to.tier == kPoolTier);
    const std::span<uint64_t> page = tier_page(load.to);
    std::fill(page.begin(), page.end(), kPoison);
  }
  update_slots(plan);
  StepResult result;
  const StepPlan drafted = drafts_ ? with_drafts(plan, result.drafting) : StepPlan();
  const std::vector<Work>& works = drafts_ ? drafted.work : plan.work;
  // All rows see the pages as the whole step leaves them, as in a forward pass layer by layer.
  for (const Work& work : works) {
    CHECK_MSG(work.drafted == 0, "tokens are to be drafted, and there is no draft model");
    compute(work);
    compute_proposals(work);
    if (keeps_states_) advance_state(work);
  }
  for (size_t i = 0; i < works.size(); ++i) {
    const Work& work = works[i];
    const Slot& slot = *slots_.at(static_cast<size_t>(work.slot.value));
    const bool samples = work.samples || !work.also_sample.empty();
    const bool verifies = !work.proposed.empty();
    const uint64_t chain = samples && !verifies ? read_back(work) : 0;
    if (work.samples || work.rows == LogitRows::kAll) {
      StepResult::Row row{
          .sequence = work.sequence, .accepted = {}, .logprobs = {}, .prompt_logprobs = {}};
      if (plan.work[i].drafted > 0) row.drafted = work.proposed;
      if (work.rows == LogitRows::kAll) score(work, slot, row);
      if (verifies) {
        verify(work, row);
      } else if (work.samples) {
        sample(work.slot, chain, row);
      }
      result.rows.push_back(std::move(row));
    }
    for (const SampleTarget& target : work.also_sample) {
      StepResult::Row row{
          .sequence = target.sequence, .accepted = {}, .logprobs = {}, .prompt_logprobs = {}};
      CHECK(slots_.at(static_cast<size_t>(target.slot.value))->sequence == target.sequence);
      states_[static_cast<size_t>(target.slot.value)] =
          states_[static_cast<size_t>(work.slot.value)];
      sample(target.slot, chain, row);
      result.rows.push_back(std::move(row));
    }
  }
  for (const PageMove& store : plan.stores_ahead) {
    move_page(store);
    if (store.from.tier != kPoolTier) continue;
    last_touch_.at(static_cast<size_t>(store.from.page)) = step_;
  }
  for (const PageMove& load : plan.loads) {
    move_page(load);
    last_touch_.at(static_cast<size_t>(load.to.page)) = step_;
  }
  return result;
}

std::span<uint64_t> OracleDevice::tier_page(TierPage place) {
  CHECK(!place.none());
  std::vector<uint64_t>& cells =
      place.tier == kPoolTier ? cells_ : tier_cells_.at(static_cast<size_t>(place.tier) - 1);
  const auto count = static_cast<size_t>(page_cells_);
  CHECK((static_cast<size_t>(place.page) + 1) * count <= cells.size());
  return std::span(cells).subspan(static_cast<size_t>(place.page) * count, count);
}

void OracleDevice::move_page(const PageMove& move) {
  const std::span<uint64_t> from = tier_page(move.from), to = tier_page(move.to);
  CHECK_MSG(move.from != move.to, "a page is moved to itself");
  std::copy(from.begin(), from.end(), to.begin());
  std::fill(from.begin(), from.end(), kPoison);
}

void OracleDevice::update_slots(const StepPlan& plan) {
  for (const ReleasedSlot& released : plan.released) {
    std::unique_ptr<Slot>& slot = slots_.at(static_cast<size_t>(released.slot.value));
    CHECK_MSG(slot != nullptr && slot->sequence == released.sequence, "a slot is released twice");
    slot.reset();
  }
  for (const Admission& admission : plan.admitted) admit(admission);
  for (const Work& work : plan.work) {
    const std::unique_ptr<Slot>& slot = slots_.at(static_cast<size_t>(work.slot.value));
    CHECK_MSG(slot != nullptr && slot->sequence == work.sequence,
              "work for a sequence without a slot");
    for (const GroupBlocks& blocks : work.new_blocks) add_blocks(*slot, blocks, /*fresh=*/true);
  }
  for (const BlockCopy& copy : plan.copies) copy_page(copy);
}

void OracleDevice::admit(const Admission& admission) {
  std::unique_ptr<Slot>& slot = slots_.at(static_cast<size_t>(admission.slot.value));
  // (A beam is admitted again where it goes on from another's tokens.)
  CHECK_MSG(slot == nullptr || slot->sequence == admission.sequence,
            "a sequence is admitted to an occupied slot");
  slot = std::make_unique<Slot>();
  slot->sequence = admission.sequence;
  slot->choice = admission.choice;
  slot->request = admission.request;
  slot->tables.resize(groups_.size());
  states_[static_cast<size_t>(admission.slot.value)] =
      admission.checkpoint ? checkpoints_.at(static_cast<size_t>(admission.checkpoint->value))
                           : kPoison;
  for (TokenId token : admission.tokens) slot->append(token);
  for (const GroupBlocks& blocks : admission.blocks) add_blocks(*slot, blocks, /*fresh=*/false);
}

void OracleDevice::add_blocks(Slot& slot, const GroupBlocks& blocks, bool fresh) {
  std::vector<int32_t>& table = slot.tables.at(static_cast<size_t>(blocks.group));
  const size_t first = static_cast<size_t>(blocks.first_index);
  if (table.size() < first + blocks.blocks.size()) table.resize(first + blocks.blocks.size(), -1);
  for (size_t i = 0; i < blocks.blocks.size(); ++i) {
    const int32_t block = blocks.blocks[i].value;
    table[first + i] = block;
    if (fresh) std::fill_n(page(blocks.group, block), page_cells_, kPoison);
  }
}

void OracleDevice::copy_page(const BlockCopy& copy) {
  std::copy_n(page(copy.group, copy.from.value), page_cells_, page(copy.group, copy.to.value));
  last_touch_.at(static_cast<size_t>(copy.from.value)) = step_;
}

// The cells from `position` to the end of its page.
std::span<uint64_t> OracleDevice::cells_from(const Slot& slot, size_t group, int32_t position) {
  const int32_t block_tokens = groups_[group].block_tokens;
  const int32_t block = slot.tables[group].at(static_cast<size_t>(position / block_tokens));
  CHECK_MSG(block >= 0, "a token of a page that its sequence does not hold");
  last_touch_[static_cast<size_t>(block)] = step_;
  return std::span(page(static_cast<int32_t>(group), block), static_cast<size_t>(block_tokens))
      .subspan(static_cast<size_t>(position % block_tokens));
}

// A cell continues the chain that is read from the cell before it. A group that slides over one
// token cannot see that cell and starts from the salt and what came before.
void OracleDevice::compute(const Work& work) {
  const Slot& slot = *slots_.at(static_cast<size_t>(work.slot.value));
  CHECK(work.first >= 0 && work.count > 0);
  const int32_t end = work.first + work.count - work.proposed.size();
  CHECK_MSG(static_cast<size_t>(end) <= slot.tokens.size(),
            "a token is computed before it is known");
  for (size_t group = 0; group < groups_.size(); ++group) {
    const KvGroupSpec& spec = groups_[group];
    const bool sees_before = spec.kind == KvKind::kFull || spec.window > 1;
    const uint64_t* cell_before = nullptr;
    if (sees_before && work.first > 0) cell_before = &cells_from(slot, group, work.first - 1)[0];
    for (int32_t position = work.first; position < end;) {
      const std::span<uint64_t> cells = cells_from(slot, group, position);
      const int32_t block = slot.tables[group][static_cast<size_t>(position / spec.block_tokens)];
      last_write_[static_cast<size_t>(block)] = step_;
      for (size_t i = 0; i < cells.size() && position < end; ++i, ++position) {
        const auto at = static_cast<size_t>(position);
        uint64_t before = at == 0 ? chain_start(*slot.request) : slot.chain[at - 1];
        if (cell_before != nullptr) before = *cell_before;
        cells[i] = chain_next(before, slot.tokens[at], position);
        if (sees_before) cell_before = &cells[i];
      }
    }
  }
}

// Each lies at its own place and continues the chain that is read from the place of the one that it
// stands behind.
void OracleDevice::compute_proposals(const Work& work) {
  Slot& slot = *slots_.at(static_cast<size_t>(work.slot.value));
  const TokenTree& tree = work.proposed;
  const auto known = static_cast<int32_t>(slot.tokens.size());
  slot.proposed.clear();
  if (tree.empty()) return;
  CHECK_MSG(work.first + work.count == known + tree.size(), "proposals follow the known tokens");
  for (int32_t i = 0; i < tree.size(); ++i) {
    const int32_t parent = tree.parent(i), position = known + tree.depth(i);
    const uint64_t before = parent == TokenTree::kBeforeAll
                                ? slot.chain.back()
                                : slot.proposed[static_cast<size_t>(parent)];
    slot.proposed.push_back(chain_next(before, tree.token(i), position));
    for (size_t group = 0; group < groups_.size(); ++group) {
      const KvGroupSpec& spec = groups_[group];
      const bool sees_before = spec.kind == KvKind::kFull || spec.window > 1;
      const uint64_t read = sees_before ? cells_from(slot, group, known + parent)[0] : before;
      cells_from(slot, group, known + i)[0] = chain_next(read, tree.token(i), position);
      const auto index = static_cast<size_t>((known + i) / spec.block_tokens);
      last_write_[static_cast<size_t>(slot.tables[group][index])] = step_;
    }
  }
}

// Token by token; a state is saved on the way.
void OracleDevice::advance_state(const Work& work) {
  const Slot& slot = *slots_.at(static_cast<size_t>(work.slot.value));
  uint64_t& state = states_[static_cast<size_t>(work.slot.value)];
  if (work.first == 0) state = chain_start(*slot.request);
  auto save = work.saves.begin();
  for (int32_t position = work.first; position < work.first + work.count; ++position) {
    state = chain_next(state, slot.tokens[static_cast<size_t>(position)], position);
    if (save == work.saves.end() || save->tokens != position + 1) continue;
    checkpoints_.at(static_cast<size_t>(save->checkpoint.value)) = state;
    ++save;
  }
  CHECK_MSG(save == work.saves.end(), "a state is saved that no token of the work leaves");
}

// The chain behind the last known token of the work, or behind a proposal, as all cells that its
// row attends to say, and the state behind the work. What is not what the sequence wrote changes
// it.
uint64_t OracleDevice::read_back(const Work& work, int32_t proposal) {
  const Slot& slot = *slots_.at(static_cast<size_t>(work.slot.value));
  const int32_t end = work.first + work.count - work.proposed.size();
  std::vector<int32_t> path;  // to the proposal
  for (int32_t i = proposal; i != TokenTree::kBeforeAll; i = work.proposed.parent(i)) {
    path.insert(path.begin(), i);
  }
  const int32_t position = end - 1 + static_cast<int32_t>(path.size());
  uint64_t chain = path.empty() ? slot.chain.at(static_cast<size_t>(position))
                                : slot.proposed.at(static_cast<size_t>(path.back()));
  const uint64_t expected = chain;
  const auto compare = [&](uint64_t cell, uint64_t written) {
    if (cell != written) chain = mix64(chain ^ cell ^ kPoison);
  };
  for (size_t group = 0; group < groups_.size(); ++group) {
    const KvGroupSpec& spec = groups_[group];
    int32_t p = spec.kind == KvKind::kSliding ? std::max(0, position - spec.window + 1) : 0;
    while (p < end) {
      const std::span<uint64_t> cells = cells_from(slot, group, p);
      for (size_t i = 0; i < cells.size() && p < end; ++i, ++p) {
        compare(cells[i], slot.chain[static_cast<size_t>(p)]);
      }
    }
    for (; p <= position; ++p) {
      const int32_t at = path[static_cast<size_t>(p - end)];
      compare(cells_from(slot, group, end + at)[0], slot.proposed[static_cast<size_t>(at)]);
    }
  }
  const uint64_t state = states_[static_cast<size_t>(work.slot.value)];
  const auto computed = static_cast<size_t>(work.first + work.count);
  if (keeps_states_ && state != slot.chain.at(computed - 1)) {
    chain = mix64(chain ^ state ^ kPoison);
  }
  if (chain != expected) ++mismatches_;
  return chain;
}

// Entry i is the token after first + i, where the prompt has one.
void OracleDevice::score(const Work& work, const Slot& slot, StepResult::Row& row) {
  const auto prompt_length = static_cast<int32_t>(slot.request->prompt.size());
  for (int32_t p = work.first; p < work.first + work.count && p + 1 < prompt_length; ++p) {
    const auto at = static_cast<size_t>(p);
    row.prompt_logprobs.push_back(rank_token(model_, slot.chain[at], slot.tokens[at + 1],
                                             slot.request->sampling.prompt_logprobs));
  }
  if (faults_.erase({slot.request->id, slot.choice}) > 0) row.fault = true;
}

// The rows of the last known token and of the proposals behind it: of which the sampled tokens
// choose a path.
void OracleDevice::verify(const Work& work, StepResult::Row& row) {
  const TokenTree& tree = work.proposed;
  const uint64_t first = read_back(work);
  std::vector<uint64_t> chains;
  for (int32_t i = 0; i < tree.size(); ++i) chains.push_back(read_back(work, i));
  const Slot& slot = *slots_.at(static_cast<size_t>(work.slot.value));
  const size_t known = slot.tokens.size();
  std::vector<int32_t> path;
  sample(work.slot, first, row);
  int32_t at = tree.child(TokenTree::kBeforeAll, row.accepted.back());
  while (at != TokenTree::kBeforeAll) {
    path.push_back(at);
    sample(work.slot, chains[static_cast<size_t>(at)], row);
    at = tree.child(at, row.accepted.back());
  }
  move_accepted(slot, known, path);
}

// To where a chain would have them. The others stay and are stale.
void OracleDevice::move_accepted(const Slot& slot, size_t known, const std::vector<int32_t>& path) {
  const auto first = static_cast<int32_t>(known);
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (size_t k = 0; k < path.size(); ++k) {
      cells_from(slot, group, first + static_cast<int32_t>(k))[0] =
          cells_from(slot, group, first + path[k])[0];
    }
  }
}

void OracleDevice::sample(SlotId slot_id, uint64_t chain, StepResult::Row& row) {
  Slot& slot = *slots_.at(static_cast<size_t>(slot_id.value));
  if (faults_.erase({slot.request->id, slot.choice}) > 0) row.fault = true;
  const SamplingParams& sampling = slot.request->sampling;
  const TokenId token = draw(model_, chain, sampling.seed.value_or(0), slot.choice);
  row.accepted.push_back(token);
  if (sampling.logprobs >= 0) {
    row.logprobs.push_back(rank_token(model_, chain, token, sampling.logprobs));
  }
  slot.append(token);
}

}  // namespace headrace
