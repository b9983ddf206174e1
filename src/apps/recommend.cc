#include "apps/recommend.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/named.h"
#include "hub/file_choice.h"

namespace headrace {
namespace {

constexpr double kReadingSpeed = 8;  // tokens a second: 300 words a minute, and half as much again
constexpr double kGigabyteBytes = 1e9;

constexpr Named<Fit> kFits[] = {
    {"fits", Fit::kFast}, {"slow", Fit::kSlow}, {"too large", Fit::kNot}};

constexpr KnownModel kKnownModels[] = {
    {"smollm2:135m", 0.271, 1, "to try things"},
    {"qwen3:0.6b", 0.523, 1, "thinks aloud, calls tools"},
    {"smollm2:360m", 0.726, 1, "short answers"},
    {"gemma3:1b", 0.815, 1, "many languages"},
    {"llama3.2:1b", 1.3, 1, "summaries"},
    {"qwen3:1.7b", 1.4, 1, "thinks aloud, calls tools"},
    {"llama3.2:3b", 2.0, 1, "summaries, tools"},
    {"qwen3:4b", 2.5, 1, "thinks aloud, calls tools"},
    {"llama3.1:8b", 4.9, 1, "all-round"},
    {"qwen3:8b", 5.2, 1, "thinks aloud, calls tools"},
    {"phi4:14b", 9.1, 1, "mathematics, code"},
    {"qwen3:14b", 9.3, 1, "thinks aloud, calls tools"},
    {"qwen3:30b", 19, 3.3 / 30.5, "a mixture: of 30 billion weights 3 compute a token"},
    {"qwen3:32b", 20, 1, "thinks aloud, calls tools"},
    {"llama3.3:70b", 43, 1, "all-round"},
};

}  // namespace

std::span<const KnownModel> known_models() { return kKnownModels; }

Recommendation::Recommendation(std::string name, int64_t bytes, double active_share,
                               const MachineRates& machine)
    : name_(std::move(name)), bytes_(bytes) {
  tokens_per_second_ =
      machine.bytes_per_second / std::max(1.0, static_cast<double>(bytes) * active_share);
  const bool fits = memory_bytes() <= machine.free_bytes;
  fit_ = !fits ? Fit::kNot : tokens_per_second_ >= kReadingSpeed ? Fit::kFast : Fit::kSlow;
}

const Recommendation* best_of(const std::vector<Recommendation>& models) {
  const Recommendation* best = nullptr;
  for (const Fit fit : {Fit::kFast, Fit::kSlow}) {
    for (const Recommendation& each : models) {
      const bool larger = best == nullptr || each.bytes() > best->bytes();
      if (each.fit() == fit && larger) best = &each;
    }
    if (best != nullptr) return best;
  }
  return nullptr;
}

std::string recommendations_text(const std::vector<Recommendation>& models,
                                 const MachineRates& machine) {
  std::string text =
      fmt::format("{} of memory are free, read at {:.1f} GB/s\n\n", bytes_text(machine.free_bytes),
                  machine.bytes_per_second / kGigabyteBytes);
  size_t width = 4;
  for (const Recommendation& each : models) width = std::max(width, each.name().size());
  text += fmt::format("{:<{}}  {:>8}  {:>8}  {:>12}\n", "NAME", width, "SIZE", "NEEDS",
                      "TOK/S AT MOST");
  for (const Recommendation& each : models) {
    text += fmt::format("{:<{}}  {:>8}  {:>8}  {:>13.{}f}  {}\n", each.name(), width,
                        bytes_text(each.bytes()), bytes_text(each.memory_bytes()),
                        each.tokens_per_second(), each.tokens_per_second() < 10 ? 1 : 0,
                        name_of(kFits, each.fit()));
  }
  const Recommendation* best = best_of(models);
  if (best != nullptr && models.size() > 1) {
    text += fmt::format("\nheadrace run {} --pull \"...\"\n", best->name());
  }
  return text;
}

Json recommendations_json(const std::vector<Recommendation>& models, const MachineRates& machine) {
  Json list = Json::array();
  for (const Recommendation& each : models) {
    list.push(Json::object()
                  .set("name", each.name())
                  .set("bytes", each.bytes())
                  .set("memory_bytes", each.memory_bytes())
                  .set("tokens_per_second_max", each.tokens_per_second())
                  .set("fit", name_of(kFits, each.fit())));
  }
  const Recommendation* best = best_of(models);
  return Json::object()
      .set("free_bytes", machine.free_bytes)
      .set("bytes_per_second", machine.bytes_per_second)
      .set("models", std::move(list))
      .set("best", best == nullptr ? Json() : Json(best->name()));
}

}  // namespace headrace
