#include "apps/sampling_flags.h"

#include <limits>

namespace headrace {
namespace {

constexpr const char* kGroup = "Sampling";

void add_number(CLI::App& app, const std::string& names, float& value, float low, float high,
                const std::string& description) {
  app.add_option(names, value, description)
      ->check(CLI::Range(low, high))
      ->type_name("X")
      ->group(kGroup);
}

// Seeds above int64 are given as text: CLI11 reads the whole uint64 range.
void add_seed(CLI::App& app, SamplingParams& sampling) {
  app.add_option_function<uint64_t>(
         "--seed,-s", [&sampling](const uint64_t& seed) { sampling.seed = seed; },
         "The same seed gives the same answer (default: random)")
      ->type_name("N")
      ->group(kGroup);
}

}  // namespace

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  SamplingParams& sampling = flags.sampling;
  app.add_option("-n,--max-tokens,--n-predict,--predict", sampling.max_tokens,
                 "Most tokens of an answer; -1: as many as the context holds")
      ->check(CLI::Range(-1, std::numeric_limits<int32_t>::max()))
      ->type_name("N")
      ->group(kGroup);
  add_number(app, "--temperature,--temp", sampling.temperature, 0, 100,
             "0 takes the best token each time");
  app.add_option("--top-k", sampling.top_k, "Only the K best tokens; 0: all")
      ->check(CLI::Range(0, std::numeric_limits<int32_t>::max()))
      ->type_name("K")
      ->group(kGroup);
  add_number(app, "--top-p", sampling.top_p, 1e-6f, 1,
             "Only the best tokens that together have this probability");
  add_number(app, "--min-p", sampling.min_p, 0, 1,
             "Only tokens with this share of the best one's probability");
  add_number(app, "--repetition-penalty,--repeat-penalty", sampling.repetition_penalty, 0.01f, 100,
             "Above 1: less of what the prompt or the answer already has");
  add_number(app, "--presence-penalty", sampling.presence_penalty, -2, 2,
             "Above 0: less of what the answer already has");
  add_number(app, "--frequency-penalty", sampling.frequency_penalty, -2, 2,
             "Above 0: less of what the answer has often");
  add_seed(app, sampling);
  app.add_option("--stop,--reverse-prompt,-r", flags.stops,
                 "End the answer before this text (repeatable)")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(kGroup);
  app.add_flag("--ignore-eos", sampling.ignore_eos, "Go on where the model would end")
      ->group(kGroup);
}

}  // namespace headrace
