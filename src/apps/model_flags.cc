#include "apps/model_flags.h"

#include <cstdint>
#include <limits>

#include "apps/config_file.h"
#include "apps/default_model.h"
#include "apps/foreign_flags.h"
#include "base/log.h"
#include "engine/kv_memory.h"
#include "engine/kv_population.h"
#include "sched/queue_policy.h"

namespace headrace {
namespace {

constexpr int kThreadsMax = 1024;
constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

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

void add_log_level(CLI::App& app, ModelFlags& flags) {
  add_choice(app, "--log-level,--uvicorn-log-level", flags.log_level,
             {"debug", "info", "warning", "error", "off"}, "What is written to stderr")
      ->group("Other");
}

}  // namespace

void add_model_flags(CLI::App& app, ModelFlags& flags, ModelArgument argument) {
  add_config_flag(app);
  const std::string positional = argument == ModelArgument::kFlagOrPositional ? ",model" : "";
  app.add_option(
         "-m,--model,--model-path" + positional, flags.stack.model,
         "The model: a .gguf file, a Hugging Face folder, or a name as Qwen/Qwen3-0.6B that "
         "is in the Hugging Face cache (default: $HEADRACE_MODEL, else "
         "SmolLM2-135M-Instruct as ./quickstart fetched it)")
      ->check(CLI::Validator(
          [](std::string& text) { return text.empty() ? "must not be empty" : std::string(); }, ""))
      ->type_name("PATH")
      ->group("Model");
  app.add_option("-t,--threads", flags.stack.threads,
                 "CPU threads (default: one a core that the program may use, within its quota)")
      ->check(CLI::Range(0, kThreadsMax))
      ->type_name("N")
      ->group("Model");
  add_compute_flags(app, flags);
}

void add_compute_flags(CLI::App& app, ModelFlags& flags) {
  StackOptions& stack = flags.stack;
  add_choice(app, "--load-format", stack.load_format,
             {"auto", "gguf", "safetensors", "hf", "dummy"},
             "dummy: random weights in the shape that a config.json gives")
      ->group("Model");
  add_choice(app, "--dtype", stack.dtype,
             {"auto", "float32", "float", "float16", "half", "bfloat16"},
             "Arithmetic. auto: the fast path for the file's types; float32: all in fp32; GPU: "
             "float16, bfloat16 too")
      ->group("Model");
  app.add_option("--activation-bits", stack.activation_bits,
                 "CPU, quantised weights: 8 bits of activations (16 for outliers) or 16 for all: "
                 "close to fp32, and slower at prompts and many streams")
      ->check(CLI::IsMember({8, 16}))
      ->type_name("8|16")
      ->group("Model");
  app.add_option("--device", stack.device,
                 "Where the model runs: auto (the GPU if there is one), cpu, cuda, cuda:N")
      ->type_name("DEVICE")
      ->group("Model");
  add_choice(app, "--quantization,-q", stack.quantization, {"none", "q8_0", "q4_0", "q4_k"},
             "CPU: quantise float matrices (bf16, fp16, fp32) while the model is loaded")
      ->group("Model");
  stack.packed_cache = "auto";
  add_choice(
      app, "--packed-cache", stack.packed_cache, {"off", "auto", "on"},
      "CPU, .gguf files: keep the weights as this machine's kernels want them in a file, which "
      "later starts map instead of packing; auto: files of 16 MiB to 2 GiB on a disk with ample "
      "room; $HEADRACE_PACKED_CACHE sets it where the flag does not")
      ->envname("HEADRACE_PACKED_CACHE")
      ->group("Model");
  app.add_option("--packed-cache-dir", stack.packed_cache_folder,
                 "Where those files lie (default: headrace/packed in the user's cache folder; the "
                 "longest unused go when they are more than 4 GiB)")
      ->type_name("FOLDER")
      ->group("Model");
  add_choice(app, "--cpu-bind", stack.cpu_bind, {"auto", "core", "node", "none"},
             "CPUs of each compute thread: one of its own, its NUMA node's, or any; auto: core "
             "where the threads take every core and no quota shares them")
      ->group("Model");
  add_log_level(app, flags);
  add_foreign_flags(app);
}

void add_generation_config_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option(
         "--generation-config", flags.stack.generation_config,
         "Sampling where nothing else is said. auto: as the model's makers suggest "
         "(generation_config.json, general.sampling.* of a GGUF file); vllm: none of it; or "
         "a folder with a generation_config.json")
      ->type_name("auto|vllm|FOLDER")
      ->group("Model");
  app.add_option("--override-generation-config", flags.stack.override_generation_config,
                 "Goes before it, as {\"temperature\": 0.6, \"top_k\": 20}; keys: temperature, "
                 "top_p, top_k, min_p, repetition_penalty, max_new_tokens")
      ->type_name("JSON")
      ->group("Model");
}

void add_template_flag(CLI::App& app, ModelFlags& flags) {
  app.add_option("--chat-template,--chat-template-file", flags.stack.chat_template,
                 "A Jinja template instead of the model's, or a file with one")
      ->type_name("FILE|TEXT")
      ->group("Model");
}

void add_engine_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("--max-model-len,--ctx-size,--context-length,--max-seq-len,-c",
                 flags.stack.max_model_len,
                 "Longest prompt plus answer, in tokens (default: the model's, at most 8192)")
      ->transform(model_len())
      ->type_name("N")
      ->group("Engine");
  add_batch_flags(app, flags);
}

void add_batch_flags(CLI::App& app, ModelFlags& flags) {
  StackOptions& stack = flags.stack;
  const auto add_size = [&](const std::string& names, auto& value, int64_t low, int64_t high,
                            const std::string& description) {
    app.add_option(names, value, description)
        ->transform(size_between(low, high))
        ->type_name("N")
        ->group("Engine");
  };
  add_size("--max-num-seqs,--parallel,--np,--max-running-requests,--max-batch-size",
           stack.max_num_seqs, 1, 1 << 16,
           "Answers computed at the same time (default: CPU 64, GPU 256)");
  add_size("--max-num-batched-tokens,--ubatch-size,--ub,--chunked-prefill-size,--max-num-tokens",
           stack.max_num_batched_tokens, 1, 1 << 20,
           "Most tokens in one step (default: CPU 512, or 256 for less than 1 GiB of weights; GPU "
           "8192)");
  add_size("--kv-cache-memory-bytes", stack.kv_cache_memory_bytes, 0, kInt64Max,
           "Memory for keys and values (default: CPU: by --max-model-len and --max-num-seqs; GPU: "
           "what --gpu-memory-utilization leaves)");
  app.add_option("--gpu-memory-utilization,--mem-fraction-static", stack.gpu_memory_utilization,
                 "Share of a GPU's memory for weights, activations, keys and values")
      ->check(number_between(0.01, 1.0))
      ->type_name("X")
      ->group("Engine");
  app.add_flag(
         "--overlap,--async-scheduling,!--no-overlap,!--no-async-scheduling,!--disable-overlap-"
         "schedule",
         stack.overlap, "GPU: submit a step before the tokens of the last one are read")
      ->group("Engine");
  app.add_flag("--cuda-graphs,!--enforce-eager,!--no-cuda-graphs", stack.graphs,
               "GPU: record steps that only decode and replay them")
      ->group("Engine");
  app.add_flag("--batch-invariant", stack.batch_invariant,
               "GPU: an answer has the same bits whatever runs beside it, at some cost in speed (a "
               "CPU's always has)")
      ->group("Engine");
  app.add_flag("--graphs-at-start", stack.graphs_at_start,
               "GPU: record all steps before the first request (default: while answering)")
      ->group("Engine");
  app.add_flag(
         "--gemm-trials,!--no-gemm-trials", stack.gemm_trials,
         "GPU: time the algorithms of the vendor's matrix products on the model's own weights "
         "while there is nothing to do, and keep the fastest")
      ->group("Engine");
  app.add_option("--prefer-kernels", stack.prefer_kernels,
                 "For measurements: kernels that run wherever they fit, in place of the best "
                 "(linear/cuda/library,...)")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->group("Engine");
  add_choice(app, "--scheduling-policy,--schedule-policy,--policy", stack.policy,
             queue_policy_names(), "Who runs next (docs/scheduling.md)")
      ->group("Engine");
  app.add_flag(
         "--enable-prefix-caching,!--no-enable-prefix-caching,--cache-prompt,!--no-cache-prompt,"
         "!--disable-radix-cache",
         stack.enable_prefix_caching,
         "Keep the keys and values of prompts and answers for requests that begin alike")
      ->group("Engine");
  add_choice(app, "--prefix-cache-eviction", stack.prefix_cache_eviction, {"lru", "lfu", "cost"},
             "What goes first when memory is needed: least recently used, least frequently used, "
             "or least costly to compute again")
      ->group("Engine");
  const auto add_gib = [&](const std::string& names, double& value,
                           const std::string& description) {
    app.add_option(names, value, description)
        ->check(number_between(0.0, 1048576.0))
        ->type_name("GIB")
        ->group("Engine");
  };
  add_gib("--kv-offloading-size,--hicache-size", stack.kv_offloading_gib,
          "Host memory for the keys and values of prefixes and preempted requests that the pool "
          "has no room for (default 0: they are computed again)");
  add_gib("--kv-disk-size", stack.kv_disk_gib,
          "The same on disk, for what that memory has no room for");
  app.add_option("--kv-disk-path", stack.kv_disk_path,
                 "Folder of --kv-disk-size (default: the temporary one)")
      ->type_name("DIR")
      ->group("Engine");
  app.add_option("--kv-save", stack.kv_save_path,
                 "File in which the prefix cache is saved at shutdown and looked for at start. It "
                 "holds what was said")
      ->type_name("FILE")
      ->group("Engine");
  add_choice(app, "--kv-memory", stack.kv_memory, kv_memory_names(),
             "Memory of keys and values: pages in block tables, pages mapped into a range of "
             "addresses for each request, or a range of memory for each")
      ->group("Engine");
  add_choice(app, "--kv-populate", stack.kv_populate, kv_populate_names(),
             "CPU: when the memory of keys and values is taken: off: as it is first used; idle: "
             "while there is nothing to compute; start: all at start")
      ->group("Engine");
  add_choice(app, "--preemption-mode", stack.preemption_mode, {"auto", "swap", "recompute"},
             "What --kv-offloading-size keeps: auto: what is cheaper to load than to compute; "
             "swap: everything; recompute: nothing")
      ->group("Engine");
  add_choice(app, "--priority-order", stack.priority_order, {"lower-first", "higher-first"},
             "Which value of a request's priority goes first, under --policy priority")
      ->group("Engine");
  add_size("--max-queued-tokens,--max-num-queued-tokens", stack.max_queued_tokens, 0, kInt64Max,
           "Most prompt tokens that wait; a request over it is answered 429 (0: no bound)");
  app.add_option("--max-queue-seconds", stack.max_queue_seconds,
                 "Longest predicted wait; a request over it is answered 429 (0: no bound)")
      ->check(number_between(0.0, 86400.0))
      ->type_name("S")
      ->group("Engine");
  app.add_option("--tpot-target", stack.tpot_target_seconds,
                 "Seconds that a step with running answers may take: prompt chunks are cut to keep "
                 "it (0: chunks fill every step)")
      ->check(number_between(0.0, 3600.0))
      ->type_name("S")
      ->group("Engine");
  app.add_option("--tpot-over-share", stack.tpot_over_share,
                 "Share of the steps with decodes that may take longer than --tpot-target: full "
                 "steps for the ends of long prompts")
      ->check(number_between(0.0, 1.0))
      ->group("Engine");
  app.add_option("--background-step", stack.background_step_seconds,
                 "Seconds that a step with background work (service_tier flex, batches) may take "
                 "while others have work")
      ->check(number_between(0.0, 3600.0))
      ->type_name("S")
      ->group("Engine");
  app.add_option("--background-gap-step", stack.background_gap_seconds,
                 "Seconds that a step of background work alone may take while live requests come "
                 "and go (one in the last 5 s; 0: no bound)")
      ->check(number_between(0.0, 3600.0))
      ->type_name("S")
      ->group("Engine");
  app.add_option_function<std::vector<std::string>>(
         "--slo-class",
         [&stack](const std::vector<std::string>& texts) {
           stack.slo_classes.clear();
           for (const std::string& text : texts) stack.slo_classes.push_back(parse_slo_class(text));
         },
         "NAME=TTFT,TPOT in seconds (repeatable; the first is the default): what slo_class of a "
         "request names, for --policy deadline")
      ->type_name("CLASS")
      ->group("Engine");
  add_size("--promote-after-steps", stack.promote_after_steps, 1, kInt32Max,
           "Steps without work after which a request goes before all others, under policies that "
           "reorder the queue");
  add_size("--mlfq-quantum", stack.mlfq_quantum, 1, 1 << 20, "mlfq: tokens of the first quantum");
  app.add_option("--crowd-step-ratio", stack.crowd_step_ratio,
                 "fair: a step with prompts of a tenant with more than its share takes at most so "
                 "many times what its decodes take; 0: no bound")
      ->check(number_between(0.0, 1000.0))
      ->type_name("X")
      ->group("Engine");
  app.add_option("--waiting-served-ratio", stack.waiting_served_ratio,
                 "waiting-ratio: prompts go first when so many times as many wait as run")
      ->check(number_between(0.0, 1e6))
      ->type_name("X")
      ->group("Engine");
  add_size("--max-waiting-tokens", stack.max_waiting_tokens, 1, kInt32Max,
           "waiting-ratio: decode steps after which prompts go first");
  add_size("--max-prefill-seqs", stack.max_prefill_seqs, 1, 1 << 16,
           "openppl: prompts computed at a time");
  add_choice(app, "--static-ended-rows", stack.static_ended_rows, {"computed", "skipped"},
             "static: a row whose answer has ended is computed, and holds its memory, until its "
             "batch has ended, as in engines whose batches have one shape, or only holds its slot")
      ->group("Engine");
  app.add_flag("--enable-chunked-prefill,!--no-enable-chunked-prefill", stack.chunked_prefill,
               "Split long prompts over steps, so that running answers go on")
      ->group("Engine");
}

Status apply_model_flags(ModelFlags& flags) {
  const std::string& level = flags.log_level;
  set_log_level(level == "debug"     ? LogLevel::kDebug
                : level == "info"    ? LogLevel::kInfo
                : level == "warning" ? LogLevel::kWarning
                : level == "error"   ? LogLevel::kError
                                     : LogLevel::kOff);
  if (flags.stack.dtype == "float") flags.stack.dtype = "float32";
  if (flags.stack.model.empty()) {
    HR_ASSIGN_OR_RETURN(flags.stack.model, default_model_path());
  }
  return ok_status();
}

}  // namespace headrace
