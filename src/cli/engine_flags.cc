#include "cli/engine_flags.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cli/speculative_config.h"
#include "sched/queue_policy.h"

namespace headrace {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

constexpr Named<bool> kHigherPriorityFirst[] = {{"lower-first", false}, {"higher-first", true}};

// "auto" and "-1" leave the length to the model and the memory.
CLI::Validator model_len() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (text != "auto" && text != "-1") return size_between(0, kInt32Max)(text);
        text = "0";
        return {};
      },
      "");
}

// "chat=0.5,0.03"
SloClass parse_slo_class(const std::string& text) {
  SloClass result;
  const size_t equals = text.find('='), comma = text.find(',', equals);
  const auto seconds = [](const std::string& number) {
    double value = 0;
    const bool good = CLI::detail::lexical_cast(number, value) && value > 0;
    return good ? value : 0.0;
  };
  if (equals != std::string::npos && equals > 0 && comma != std::string::npos) {
    result = {text.substr(0, equals), seconds(text.substr(equals + 1, comma - equals - 1)),
              seconds(text.substr(comma + 1))};
  }
  if (result.ttft_seconds > 0 && result.tpot_seconds > 0) return result;
  throw CLI::ValidationError("--slo-class", text + ": expected NAME=TTFT,TPOT, as chat=0.5,0.03");
}

template <class Value>
void add_size(CLI::App& app, const std::string& names, Value& value, int64_t low, int64_t high,
              const std::string& description) {
  app.add_option(names, value, description)
      ->transform(size_between(low, high))
      ->type_name("N")
      ->group("Engine");
}

void add_gib(CLI::App& app, const std::string& names, double& value,
             const std::string& description) {
  app.add_option(names, value, description)
      ->check(number_between(0.0, 1048576.0))
      ->type_name("GIB")
      ->group("Engine");
}

void add_step_flags(CLI::App& app, StackOptions& stack) {
  add_size(
      app, "--max-num-seqs,--parallel,--np,--max-running-requests,--max-batch-size",
      stack.batch.max_num_seqs, 1, 1 << 16,
      "Answers computed at the same time (default: CPU 64; GPU: by its memory, of a server at most "
      "256, of a job 1024; docs/scheduling.md)");
  add_size(app,
           "--max-num-batched-tokens,--ubatch-size,--ub,--chunked-prefill-size,--max-num-tokens,"
           "--max-prefill-token-num",
           stack.batch.max_num_batched_tokens, 1, 1 << 20,
           "Most tokens in one step (default: CPU 512, or 256 for less than 1 GiB of weights; GPU "
           "8192, less with little memory or for a job of declared lengths)");
  add_size(app, "--kv-cache-memory-bytes", stack.memory.kv_cache_memory_bytes, 0, kInt64Max,
           "Memory for keys and values (default: CPU: by --max-model-len and --max-num-seqs; GPU: "
           "what --gpu-memory-utilization leaves)");
  app.add_option("--gpu-memory-utilization,--mem-fraction-static",
                 stack.memory.gpu_memory_utilization,
                 "Share of a GPU's memory for weights, activations, keys and values")
      ->check(number_between(0.01, 1.0))
      ->type_name("X")
      ->group("Engine");
}

void add_device_flags(CLI::App& app, StackOptions& stack) {
  app.add_flag(
         "--overlap,--async-scheduling,!--no-overlap,!--no-async-scheduling,!--disable-overlap-"
         "schedule",
         stack.device.overlap, "GPU: submit a step before the tokens of the last one are read")
      ->group("Engine");
  app.add_flag(
         "--cuda-graphs,--no-enforce-eager,!--enforce-eager,!--no-cuda-graphs,!--disable-cuda-"
         "graph",
         stack.runner.graphs, "GPU: record steps that only decode and replay them")
      ->group("Engine");
  app.add_flag(
         "--batch-invariant,--enable-deterministic-inference", stack.device.batch_invariant,
         "an answer has the same bits whatever runs beside it, at some cost in speed: on a GPU, "
         "and on a CPU with AMX (other CPUs' always have)")
      ->group("Engine");
  app.add_flag("--graphs-at-start", stack.runner.graphs_at_start,
               "GPU: record all steps before the first request (default: while answering)")
      ->group("Engine");
  app.add_flag(
         "--gemm-trials,!--no-gemm-trials", stack.runner.gemm_trials,
         "GPU: time the algorithms of the vendor's matrix products on the model's own weights "
         "while there is nothing to do, and keep the fastest")
      ->group("Engine");
  app.add_flag("--full-step-trials,!--no-full-step-trials", stack.runner.full_step_trials,
               "GPU: the same for the products of a step of --max-num-batched-tokens")
      ->group("Engine");
  add_size(app, "--max-cudagraph-capture-size,--cuda-graph-max-bs", stack.runner.recorded_rows_max,
           1, 1 << 12, "GPU: most sequences of a step that is recorded");
  app.add_flag("--split-prompts,!--no-split-prompts", stack.runner.split_prompts,
               "GPU: attention of a prompt's few rows behind a long context shares its keys out "
               "over all multiprocessors")
      ->group("Engine");
}

void add_rank_flags(CLI::App& app, DeviceOptions& device) {
  add_size(app, "--tensor-parallel-size,--tp,--tp-size", device.tensor_parallel_size, 1, 64,
           "Ranks that share the model's heads and columns: GPUs, from that of --device on, which "
           "reach each other's memory; on a CPU each has some of the threads and its part of the "
           "weights in memory of their node");
  add_choice(app, "--tensor-parallel-sums", device.tensor_parallel_sums, kShardSums,
             "What ranks exchange: gather: inputs of a product, and every answer has the bits of "
             "one rank (with AMX: --batch-invariant); reduce: its sums; auto: gather on a CPU, "
             "reduce on GPUs")
      ->group("Engine");
  app.add_flag("--enable-expert-parallel,!--no-enable-expert-parallel",
               device.enable_expert_parallel,
               "Of mixtures a rank has some of the experts, whole, not some columns of every one")
      ->group("Engine");
}

void add_stage_flag(CLI::App& app, DeviceOptions& device) {
  add_size(
      app, "--pipeline-parallel-size,--pp,--pp-size", device.pipeline_parallel_size, 1, 64,
      "stages that share the model's layers, each a GPU or some of the threads: as many steps are "
      "computed side by side, of different sequences");
}

void add_cache_flags(CLI::App& app, StackOptions& stack) {
  app.add_flag(
         "--enable-prefix-caching,!--no-enable-prefix-caching,--cache-prompt,!--no-cache-prompt,"
         "!--disable-radix-cache",
         stack.engine.scheduler.enable_prefix_caching,
         "Keep the keys and values of prompts and answers for requests that begin alike")
      ->group("Engine");
  add_choice(app, "--prefix-cache-eviction,--radix-eviction-policy",
             stack.engine.scheduler.prefix_cache_eviction, {"lru", "lfu", "cost"},
             "What goes first when memory is needed: least recently used, least frequently used, "
             "or least costly to compute again")
      ->group("Engine");
  add_size(app, "--state-checkpoints", stack.memory.state_checkpoints, 0, 1 << 20,
           "Of models whose layers keep a state of each sequence: states that are saved, so that "
           "requests that begin alike are not computed anew (default: two for each of "
           "--max-num-seqs, within an eighth of the free memory; 0: none)");
  add_gib(app, "--kv-offloading-size,--hicache-size", stack.tiers.host_gib,
          "Host memory for the keys and values of prefixes and preempted requests that the pool "
          "has no room for (default 0: they are computed again)");
  add_gib(app, "--kv-disk-size", stack.tiers.disk_gib,
          "The same on disk, for what that memory has no room for");
  app.add_option("--kv-disk-path", stack.tiers.disk_path,
                 "Folder of --kv-disk-size (default: the temporary one)")
      ->type_name("DIR")
      ->group("Engine");
  app.add_option("--kv-save", stack.engine.kv_save_path,
                 "File in which the prefix cache is saved at shutdown and looked for at start. It "
                 "holds what was said")
      ->type_name("FILE")
      ->group("Engine");
  add_choice(
      app, "--kv-cache-dtype", stack.kv_formats.both, kKvFormats,
      "What keys and values are kept as. CPU: int8: 8 bits and a scale for 32 of them, in "
      "about half the memory of f16, which auto is unless all is computed in fp32. int4: "
      "4 bits, in 0.28 of f16's, for values: keys lose much. GPU: int8 (a scale for a token's "
      "head) or fp8 (e4m3, no scales), in about half the memory of the activations' type, which "
      "auto is; int4: in 0.27 of it, for large models without biases of keys")
      ->group("Engine");
  add_choice(app, "--cache-type-k,--ctk", stack.kv_formats.k, kKvFormats,
             "CPU: the same of keys alone; auto: as --kv-cache-dtype")
      ->group("Engine");
  add_choice(app, "--cache-type-v,--ctv", stack.kv_formats.v, kKvFormats,
             "CPU: the same of values alone; auto: as --kv-cache-dtype")
      ->group("Engine");
  add_choice(app, "--kv-memory", stack.runner.kv_memory, kKvMemoryKinds,
             "Memory of keys and values: pages in block tables, pages mapped into a range of "
             "addresses for each request, or a range of memory for each")
      ->group("Engine");
  add_choice(app, "--kv-populate", stack.runner.kv_populate, kKvPopulateNames,
             "CPU: when the memory of keys and values is taken: off: as it is first used; idle: "
             "while there is nothing to compute; start: all at start")
      ->group("Engine");
  add_choice(app, "--preemption-mode", stack.tiers.mode, kPreemptionModes,
             "What --kv-offloading-size keeps: auto: what is cheaper to load than to compute; "
             "swap: everything; recompute: nothing")
      ->group("Engine");
}

void add_queue_flags(CLI::App& app, SchedulerOptions& scheduler) {
  add_choice(app, "--priority-order", scheduler.higher_priority_first, kHigherPriorityFirst,
             "Which value of a request's priority goes first, under --policy priority")
      ->group("Engine");
  add_size(app, "--max-queued-tokens,--max-num-queued-tokens", scheduler.queue_bounds.tokens, 0,
           kInt64Max,
           "Most prompt tokens that wait; a request over it is answered 429 (0: no bound)");
  app.add_option("--max-queue-seconds", scheduler.queue_bounds.seconds,
                 "Longest predicted wait; a request over it is answered 429 (0: no bound)")
      ->check(number_between(0.0, 86400.0))
      ->type_name("S")
      ->group("Engine");
}

void add_latency_flags(CLI::App& app, SchedulerOptions& scheduler) {
  app.add_option("--tpot-target", scheduler.tpot_target_seconds,
                 "Seconds that a step with running answers may take: prompt chunks are cut to keep "
                 "it (0: chunks fill every step)")
      ->check(number_between(0.0, 3600.0))
      ->type_name("S")
      ->group("Engine");
  app.add_option("--tpot-over-share", scheduler.tpot_over_share,
                 "Share of the steps with decodes that may take longer than --tpot-target: full "
                 "steps for the ends of long prompts")
      ->check(number_between(0.0, 1.0))
      ->group("Engine");
  app.add_option(
         "--max-step-seconds", scheduler.step_seconds_max,
         "Seconds that no step with running answers takes longer than, full steps included: "
         "the pause that a long prompt puts between the tokens of others (0: no bound)")
      ->check(number_between(0.0, 3600.0))
      ->type_name("S")
      ->group("Engine");
  app.add_option("--background-step", scheduler.background.step_seconds,
                 "Seconds that a step with background work (service_tier flex, batches) may take "
                 "while others have work")
      ->check(number_between(0.0, 3600.0))
      ->type_name("S")
      ->group("Engine");
  app.add_option("--background-over-share", scheduler.background.over_share,
                 "Share of the steps with background work beside live answers that may take longer "
                 "than --background-step: the less, the less is computed in them")
      ->check(number_between(0.001, 1.0))
      ->group("Engine");
  app.add_option("--background-gap-step", scheduler.background.gap_seconds,
                 "Seconds that a step of background work alone may take while live requests come "
                 "and go (one in the last 5 s; 0: no bound)")
      ->check(number_between(0.0, 3600.0))
      ->type_name("S")
      ->group("Engine");
  app.add_option_function<std::vector<std::string>>(
         "--slo-class",
         [&scheduler](const std::vector<std::string>& texts) {
           scheduler.slo_classes.clear();
           for (const std::string& text : texts)
             scheduler.slo_classes.push_back(parse_slo_class(text));
         },
         "NAME=TTFT,TPOT in seconds (repeatable; the first is the default): what slo_class of a "
         "request names, for --policy deadline")
      ->type_name("CLASS")
      ->group("Engine");
}

void add_admission_flags(CLI::App& app, SchedulerOptions& scheduler) {
  app.add_option("--admission-headroom", scheduler.admission_headroom,
                 "Who joins leaves pages for so much of the growth that is expected of what runs, "
                 "by the lengths of answers that ended lately; more: fewer at once and fewer "
                 "preempted; 0: it need not")
      ->check(number_between(0.0, 100.0))
      ->type_name("X")
      ->group("Engine");
}

// Of single policies.
void add_policy_flags(CLI::App& app, SchedulerOptions& scheduler) {
  add_size(app, "--promote-after-steps", scheduler.promote_after_steps, 1, kInt32Max,
           "Steps without work after which a request goes before all others, under policies that "
           "reorder the queue");
  app.add_option("--mlfq-quantum", scheduler.mlfq_quantum_seconds,
                 "mlfq: the first queue's quantum; 0: the shortest step, as measured")
      ->check(number_between(0.0, 3600.0))
      ->type_name("SECONDS")
      ->group("Engine");
  app.add_option("--crowd-step-ratio", scheduler.crowd_step_ratio,
                 "fair: a step with prompts of a tenant with more than its share takes at most so "
                 "many times what its decodes take; 0: no bound")
      ->check(number_between(0.0, 1000.0))
      ->type_name("X")
      ->group("Engine");
  app.add_option("--waiting-served-ratio", scheduler.waiting.served_ratio,
                 "waiting-ratio: prompts go first when so many times as many wait as run")
      ->check(number_between(0.0, 1e6))
      ->type_name("X")
      ->group("Engine");
  add_size(app, "--max-waiting-tokens", scheduler.waiting.max_tokens, 1, kInt32Max,
           "waiting-ratio: decode steps after which prompts go first");
  add_size(app, "--max-prefill-seqs", scheduler.openppl.joining_max, 1, 1 << 16,
           "openppl: requests that join in one step");
  add_choice(app, "--static-ended-rows", scheduler.static_computes_ended_rows, kEndedRowsComputed,
             "static: a row whose answer has ended is computed, and holds its memory, until its "
             "batch has ended, as in engines whose batches have one shape, or only holds its slot")
      ->group("Engine");
}

void add_proposal_flags(CLI::App& app, ProposalOptions& proposals, std::string& draft_model) {
  add_choice(app, "--spec-method", proposals.method, kProposalMethods,
             "Speculative decoding: tokens are proposed and verified several a step, which changes "
             "no answer; ngram proposes what followed the last tokens before, the others what "
             "--model-draft says: a smaller model, EAGLE or Medusa heads")
      ->group("Engine");
  app.add_option(
         "--model-draft,--md,--spec-draft-model,--speculative-model,--spec-model,"
         "--speculative-draft-model-path,--speculative-draft-model",
         draft_model,
         "Speculative decoding with a smaller model that has the same tokens, a .gguf file or a "
         "folder, or with heads that were made for the model, a folder (EAGLE, Medusa)")
      ->type_name("PATH")
      ->group("Engine");
  add_size(app,
           "--num-speculative-tokens,--spec-tokens,--draft-max,--draft,--draft-n,"
           "--spec-draft-n-max,--speculative-num-steps",
           proposals.tokens_max, 1, kProposedTokensMax,
           "Most tokens that are proposed behind each other");
  add_size(app, "--spec-tree-width,--speculative-eagle-topk", proposals.tree_width, 1,
           kTreeWidthMax,
           "On a CPU: a tree is proposed, in which at most N branches go on from one token; 1: a "
           "chain");
  add_size(app, "--spec-tree-tokens", proposals.tree_tokens, 1, TokenTree::kTokensMax,
           "Most tokens of a tree");
  app.add_option_function<int32_t>(
         "--speculative-num-draft-tokens",
         [&proposals](int32_t count) { proposals.tree_tokens = count - 1; },
         "SGLang's --spec-tree-tokens: one more, as it counts the last known token")
      ->transform(size_between(2, TokenTree::kTokensMax + 1))
      ->type_name("N")
      ->group("Engine");
  app.add_option("--draft-p-min,--spec-draft-p-min", proposals.chance_min,
                 "A greedy draft ends where the chance that all tokens of its likeliest branch are "
                 "right, by the draft model, falls below this")
      ->check(number_between(0, 1))
      ->type_name("P")
      ->group("Engine");
  add_size(app, "--draft-vocab", proposals.draft_vocab, 0, kInt32Max,
           "The draft model proposes of its first N tokens only, which reads less of its output "
           "matrix; 0: all");
  app.add_flag("--jump-ahead,!--no-jump-ahead", proposals.jump_ahead,
               "Structured output on a CPU: what a form leaves no choice about, as the keys of a "
               "schema, is proposed and verified several tokens a step, which changes no answer")
      ->group("Engine");
  const auto read = [&proposals, &draft_model](const std::string& json) {
    const Status status = read_speculative_config(json, proposals, draft_model);
    if (!status.ok()) {
      throw CLI::ValidationError("--speculative-config", std::string(status.message()));
    }
  };
  app.add_option_function<std::string>(
         "--speculative-config,--sc", read,
         "The same as JSON: method, model, num_speculative_tokens, prompt_lookup_min, "
         "prompt_lookup_max, tree_width, tree_tokens, speculative_token_tree (of a draft: as vLLM "
         "has it) and, to measure "
         "speed alone, synthetic_acceptance_rate (proposals are accepted with that chance, answers "
         "mean nothing)")
      ->type_name("JSON")
      ->group("Engine");
}

}  // namespace

void add_engine_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("--max-model-len,--ctx-size,--context-length,--max-seq-len,--session-len,-c",
                 flags.stack.memory.max_model_len,
                 "Longest prompt plus answer, in tokens (default: the model's; on a CPU at most "
                 "8192)")
      ->transform(model_len())
      ->type_name("N")
      ->group("Engine");
  add_batch_flags(app, flags);
}

void add_speculation_flags(CLI::App& app, ModelFlags& flags) {
  add_proposal_flags(app, flags.stack.engine.scheduler.proposals, flags.stack.draft_model);
}

void add_batch_flags(CLI::App& app, ModelFlags& flags) {
  StackOptions& stack = flags.stack;
  add_step_flags(app, stack);
  add_device_flags(app, stack);
  add_rank_flags(app, stack.device);
  add_stage_flag(app, stack.device);
  std::vector<std::string> policies = queue_policy_names();
  policies.insert(policies.begin(), "auto");
  add_choice(app, "--scheduling-policy,--schedule-policy,--policy", stack.batch.policy,
             std::move(policies),
             "Who runs next (docs/scheduling.md); auto: fcfs, and a job whose lengths are known "
             "sends the longest first")
      ->group("Engine");
  add_cache_flags(app, stack);
  add_queue_flags(app, stack.engine.scheduler);
  add_latency_flags(app, stack.engine.scheduler);
  add_admission_flags(app, stack.engine.scheduler);
  add_policy_flags(app, stack.engine.scheduler);
  add_speculation_flags(app, flags);
  app.add_flag("--enable-chunked-prefill,!--no-enable-chunked-prefill",
               stack.engine.scheduler.chunked_prefill,
               "Split long prompts over steps, so that running answers go on")
      ->group("Engine");
}

}  // namespace headrace
