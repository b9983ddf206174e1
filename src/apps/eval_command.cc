#include "apps/eval_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "apps/eval_perplexity.h"
#include "apps/eval_score.h"
#include "base/json.h"
#include "cli/engine_flags.h"
#include "cli/load_progress.h"
#include "cli/model_flags.h"
#include "terminal/progress.h"

namespace headrace {
namespace {

constexpr const char* kEvalFooter = R"(Examples:
  headrace eval perplexity book.txt -m model.gguf -c 512
  headrace eval perplexity book.txt -m model.gguf -c 2048 -o json --dtype float32
  headrace eval score ids.jsonl -m model.gguf --top 5    (lines of {"id": 1, "prompt_ids": [1, 2]}))";

struct EvalFlags {
  ModelFlags model{.stack = {.batch = {.max_num_seqs = 4}}};
  std::string task, file;
  std::string output = "text";
  int32_t window = 512;
  ScoreOptions score;
};

void add_eval_flags(CLI::App& app, EvalFlags& flags) {
  add_choice(app, "TASK", flags.task, {"perplexity", "score"},
             "perplexity: of a text; score: log-probabilities of token ids")
      ->required()
      ->group("Evaluation");
  app.add_option("FILE", flags.file, "The text, or JSON lines of ids; '-': stdin")
      ->required()
      ->group("Evaluation");
  app.add_option("-c,--ctx-size,--max-model-len", flags.window,
                 "perplexity: tokens of a window; score: longest line of ids plus -n")
      ->transform(size_between(2, 1 << 24))
      ->type_name("N")
      ->group("Evaluation");
  add_choice(app, "-o,--output", flags.output, {"text", "json"}, "How perplexity is printed")
      ->group("Evaluation");
  app.add_option("--top", flags.score.top, "score: how many tokens are shown at each place")
      ->check(CLI::Range(0, 1024))
      ->type_name("K")
      ->group("Evaluation");
  app.add_option("-n,--max-tokens", flags.score.max_tokens,
                 "score: tokens continued greedily after each line")
      ->check(CLI::Range(0, 1 << 24))
      ->type_name("N")
      ->group("Evaluation");
  add_model_flags(app, flags.model);
  add_batch_flags(app, flags.model);
  app.footer(kEvalFooter);
}

Result<Perplexity> measure_with_progress(ModelStack& stack, const std::string& text,
                                         int32_t window) {
  Progress progress("perplexity", "windows");
  return measure_perplexity(
      stack, text, window, [&](int64_t done, int64_t windows, double perplexity) {
        progress.update(static_cast<double>(done), static_cast<double>(windows),
                        fmt::format("{:.4f}", perplexity));
      });
}

// Rows on a terminal are their own progress.
Status print_scores(ModelStack& stack, const std::string& text, const ScoreOptions& options) {
  const auto total = static_cast<double>(std::count(text.begin(), text.end(), '\n'));
  const bool shows_rows = isatty(STDOUT_FILENO) == 1;
  Progress progress("score", "lines");
  double done = 0;
  return score_lines(stack, text, options, [&](std::string_view line) {
    if (done++ == 0) log_first_token(stack);
    fmt::print("{}\n", line);
    std::fflush(stdout);
    if (!shows_rows) progress.update(done, std::max(total, done));
  });
}

void print_perplexity(const Perplexity& result, const EvalFlags& flags, const StackInfo& info) {
  if (flags.output == "text") {
    fmt::print("perplexity {:.4f} +/- {:.4f}  ({} windows of {} tokens, {} targets, {:.1f} s)\n",
               result.perplexity, result.perplexity * result.stderr_nll, result.windows,
               flags.window, result.scored, result.seconds);
    return;
  }
  const Json report =
      Json::object()
          .set("model", info.model_name)
          .set("dtype", std::string(name_of(kArithmeticTypes, flags.model.stack.load.dtype)))
          .set("perplexity", result.perplexity)
          .set("mean_nll", result.mean_nll)
          .set("stderr_nll", result.stderr_nll)
          .set("n_ctx", flags.window)
          .set("tokens", result.text_tokens)
          .set("windows", result.windows)
          .set("scored", result.scored)
          .set("seconds", result.seconds);
  fmt::print("{}\n", write_json(report));
}

Result<int> run(EvalFlags& flags) {
  HR_RETURN_IF_ERROR(apply_model_flags(flags.model));
  HR_ASSIGN_OR_RETURN(const std::string text, read_evaluated_text(flags.file));
  flags.model.stack.memory.max_model_len = flags.window;
  HR_ASSIGN_OR_RETURN(const auto stack, load_with_progress(flags.model.stack));
  if (flags.task == "score") {
    HR_RETURN_IF_ERROR(print_scores(*stack, text, flags.score));
    return 0;
  }
  HR_ASSIGN_OR_RETURN(const Perplexity result, measure_with_progress(*stack, text, flags.window));
  print_perplexity(result, flags, stack->info());
  return 0;
}

}  // namespace

SubcommandRun define_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  add_eval_flags(app, *flags);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
