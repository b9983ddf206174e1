#include "cli/sampling_flags.h"

#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr const char* kGroup = "Sampling";

// `otherwise`: where the model says nothing either.
template <class T>
void add_chosen(CLI::App& app, const std::string& names, std::optional<T>& chosen, T otherwise,
                CLI::Validator range, const std::string& description) {
  const std::string tail = fmt::format(" (default: the model's, else {})", otherwise);
  app.add_option_function<T>(
         names, [&chosen](const T& value) { chosen = value; }, description + tail)
      ->check(std::move(range))
      ->type_name("X")
      ->group(kGroup);
}

void add_number(CLI::App& app, const std::string& names, float& value, double low, double high,
                const std::string& description) {
  app.add_option(names, value, description)
      ->check(number_between(low, high))
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

void add_chosen_sampling_flags(CLI::App& app, SamplingDefaults& chosen,
                               const SamplingParams& otherwise) {
  add_chosen(app, "--temperature,--temp", chosen.temperature, otherwise.temperature,
             number_between(0, 100), "0 takes the best token each time");
  add_chosen(app, "--top-k", chosen.top_k, otherwise.top_k,
             CLI::Range(0, std::numeric_limits<int32_t>::max()), "Only the K best tokens; 0: all");
  add_chosen(app, "--top-p", chosen.top_p, otherwise.top_p, number_between(1e-6, 1),
             "Only the best tokens that together have this probability");
  add_chosen(app, "--min-p", chosen.min_p, otherwise.min_p, number_between(0, 1),
             "Only tokens with this share of the best one's probability");
  add_chosen(app, "--repetition-penalty,--repeat-penalty", chosen.repetition_penalty,
             otherwise.repetition_penalty, number_between(0.01, 100),
             "Above 1: less of what the prompt or the answer already has");
}

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  SamplingParams& sampling = flags.sampling;
  app.add_option("-n,--max-tokens,--n-predict,--predict", sampling.max_tokens,
                 "Most tokens of an answer; -1: as many as the context holds")
      ->check(CLI::Range(-1, std::numeric_limits<int32_t>::max()))
      ->type_name("N")
      ->group(kGroup);
  add_chosen_sampling_flags(app, flags.chosen, sampling);
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

SamplingParams resolve_sampling(const SamplingFlags& flags, const SamplingDefaults& of_model) {
  SamplingParams sampling = flags.sampling;
  of_model.apply_to(sampling);
  flags.chosen.apply_to(sampling);
  const int32_t bound = of_model.max_new_tokens.value_or(-1);
  if (bound > 0 && (sampling.max_tokens < 0 || sampling.max_tokens > bound)) {
    sampling.max_tokens = bound;
  }
  return sampling;
}

}  // namespace headrace
