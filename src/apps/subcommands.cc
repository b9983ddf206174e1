#include "apps/subcommands.h"

#include "apps/chat_command.h"
#include "apps/completion_command.h"
#include "apps/doctor_command.h"
#include "apps/eval_command.h"
#include "apps/inspect_command.h"
#include "apps/man_command.h"
#include "apps/quantize_command.h"
#include "apps/run_command.h"
#include "bench/bench_ablate_command.h"
#include "bench/bench_ceilings_command.h"
#include "bench/bench_command.h"
#include "bench/bench_host_command.h"
#include "bench/bench_kernels_command.h"
#include "bench/bench_simulate_command.h"
#include "bench/bench_throughput_command.h"
#include "bench/bench_weights_command.h"
#ifdef HEADRACE_WITH_SERVER
#include "apps/batch_command.h"
#include "apps/models_command.h"
#include "apps/recommend_command.h"
#include "apps/route_command.h"
#include "apps/serve_command.h"
#include "apps/top_command.h"
#include "bench/bench_edge_command.h"
#include "bench/bench_serve_command.h"
#endif

namespace headrace {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"run", "answer one prompt", define_run},
    {"chat", "talk to a model in the terminal", define_chat},
#ifdef HEADRACE_WITH_SERVER
    {"serve", "answer over HTTP (OpenAI API)", define_serve},
    {"route", "pass requests on to many servers", define_route},
    {"batch", "answer a file of requests", define_batch},
    {"top", "watch a server in the terminal", define_top},
    {"pull", "fetch a model", define_pull},
    {"list", "the models of this machine", define_list},
    {"show", "what one of them is", define_show},
    {"rm", "remove one of them", define_rm},
    {"search", "look for models on the hub", define_search},
    {"recommend", "which models fit here, and how fast they can be", define_recommend},
#endif
    {"inspect", "show what a model file holds", define_inspect},
    {"quantize", "make a model of fewer bits", define_quantize},
    {"bench", "measure prefill and decode speed", define_bench},
    {"bench throughput", "many requests at once, offline", define_bench_throughput},
    {"bench latency", "time of a step by batch size", define_bench_latency},
#ifdef HEADRACE_WITH_SERVER
    {"bench serve", "load on a running server, over HTTP", define_bench_serve},
    {"bench edge", "HTTP and event streams beside an engine that costs nothing", define_bench_edge},
#endif
    {"bench simulate", "scheduling policies on a trace, in virtual time", define_bench_simulate},
    {"bench host", "the engine thread's time of a step, on a device that answers at once",
     define_bench_host},
    {"bench kernels", "each kernel of a model against the machine's ceilings",
     define_bench_kernels},
    {"bench ablate", "a technique on and off, the same work", define_bench_ablate},
    {"bench ceilings", "what this machine can do at most", define_bench_ceilings},
    {"bench weights", "write dummy weights as safetensors", define_bench_weights},
    {"doctor", "what this machine has, and what to change", define_doctor},
    {"eval", "score texts: perplexity, log-probabilities", define_eval},
    {"completions", "print a shell completion script", define_completion},
    {"man", "print the manual page", define_man},
};

}  // namespace

std::span<const Subcommand> subcommands() { return kSubcommands; }

const Subcommand* find_subcommand(std::string_view name) {
  if (name == "completion") name = "completions";  // as it was called, and is by others
  for (const Subcommand& subcommand : kSubcommands) {
    if (subcommand.name == name) return &subcommand;
  }
  return nullptr;
}

}  // namespace headrace
