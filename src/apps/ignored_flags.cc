#include "apps/ignored_flags.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace headrace {
namespace {

struct IgnoredFlag {
  std::string_view names;
  bool takes_value;
  std::string_view reason;
};

constexpr std::string_view kRemoved = "it was removed from vLLM";
constexpr std::string_view kNoGpu = "it is about GPUs, and models run on the CPU";
constexpr std::string_view kAlways = "it is always so here";
constexpr std::string_view kNothing = "there is nothing like it here";

constexpr IgnoredFlag kIgnoredFlags[] = {
    {"--swap-space", true, kRemoved},
    {"--disable-log-requests", false, kRemoved},
    {"--enable-reasoning", false, kRemoved},
    {"--guided-decoding-backend", true, kRemoved},
    {"--num-scheduler-steps", true, kRemoved},
    {"--use-v2-block-manager", false, kRemoved},
    {"--task", true, kRemoved},
    {"--max-seq-len-to-capture", true, kRemoved},
    {"--max-num-partial-prefills", true, kRemoved},
    {"--calculate-kv-scales", false, kRemoved},
    {"--gpu-layers,--n-gpu-layers,--ngl", true, kNoGpu},
    {"--split-mode,--sm", true, kNoGpu},
    {"--compilation-config,--cc", true, kNoGpu},
    {"--disable-custom-all-reduce", false, kNoGpu},
    {"--attention-backend", true, kNothing},
    {"--flash-attn,--fa", true, kAlways},
    {"--cont-batching,--cb", false, kAlways},
    {"--jinja", false, kAlways},
    {"--metrics,--enable-metrics", false, kAlways},
    {"--batch-size", true, "steps are bounded by --max-num-batched-tokens"},
    {"--trust-remote-code", false, "models bring no code here"},
    {"--tokenizer-mode", true, kNothing},
    {"--config-format", true, kNothing},
    {"--runner", true, kNothing},
    {"--convert", true, kNothing},
    {"--hf-overrides", true, kNothing},
    {"--distributed-executor-backend", true, kNothing},
    {"--disable-hybrid-kv-cache-manager", false, kNothing},
    {"--numa-bind", false, kNothing},
    {"--mm-processor-cache-gb", true, kNothing},
    {"--limit-mm-per-prompt", true, kNothing},
    {"--disable-log-stats", false, kNothing},
    {"--disable-uvicorn-access-log", false, kNothing},
};

void warn(std::string_view names, std::string_view reason) {
  fmt::print(stderr, "headrace: warning: {} is ignored: {}\n", names.substr(0, names.find(',')),
             reason);
}

bool is_free(const CLI::App& app, std::string_view names) {
  for (const std::string& name : CLI::detail::split(std::string(names), ',')) {
    if (app.get_option_no_throw(name) != nullptr) return false;
  }
  return true;
}

}  // namespace

void add_ignored_flags(CLI::App& app) {
  for (const IgnoredFlag& flag : kIgnoredFlags) {
    if (!is_free(app, flag.names)) continue;
    const std::string names(flag.names);
    if (flag.takes_value) {
      const auto on_value = [&flag](const std::string&) { warn(flag.names, flag.reason); };
      app.add_option_function<std::string>(names, on_value)->group("");
    } else {
      const auto on_flag = [&flag](int64_t) { warn(flag.names, flag.reason); };
      app.add_flag_function(names, on_flag)->group("");
    }
  }
}

}  // namespace headrace
