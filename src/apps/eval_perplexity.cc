#include "apps/eval_perplexity.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/request_reader.h"
#include "base/clock.h"

namespace headrace {
namespace {

// Sums of -ln p over scored targets.
struct NllSum {
  double sum = 0, squares = 0;
  int64_t count = 0;

  void add(double nll) {
    sum += nll;
    squares += nll * nll;
    ++count;
  }
  double mean() const { return sum / static_cast<double>(count); }
  double standard_error() const {
    if (count < 2) return 0;
    const double variance = squares / static_cast<double>(count) - mean() * mean();
    return std::sqrt(std::max(variance, 0.0) / static_cast<double>(count - 1));
  }
};

class PerplexityMeasurement {
 public:
  PerplexityMeasurement(ModelStack& stack, std::vector<TokenId> ids, int32_t window)
      : stack_(stack), ids_(std::move(ids)), window_(window) {}

  int64_t window_count() const { return static_cast<int64_t>(ids_.size()) / window_; }

  Status run(const PerplexityProgress& progress) {
    const int32_t in_flight_max = stack_.engine().options().scheduler.max_num_seqs;
    std::deque<std::unique_ptr<RequestReader>> in_flight;
    int64_t submitted = 0;
    for (int64_t done = 0; done < window_count(); ++done) {
      while (submitted < window_count() && static_cast<int32_t>(in_flight.size()) < in_flight_max) {
        HR_ASSIGN_OR_RETURN(auto reader, submit(submitted++));
        in_flight.push_back(std::move(reader));
      }
      HR_RETURN_IF_ERROR(score(*in_flight.front(), done));
      in_flight.pop_front();
      if (progress) progress(done + 1, window_count(), std::exp(nll_.mean()));
    }
    return ok_status();
  }

  const NllSum& nll() const { return nll_; }

 private:
  Result<std::unique_ptr<RequestReader>> submit(int64_t index) {
    const auto begin = ids_.begin() + index * window_;
    Request request{.prompt = {begin, begin + window_}};
    const Vocab& vocab = stack_.tokenizer()->vocab();
    if (vocab.add_bos && vocab.bos >= 0) request.prompt.front() = vocab.bos;
    request.sampling.max_tokens = 0;
    request.sampling.prompt_logprobs = 0;
    return RequestReader::submit(stack_.engine(), std::move(request));
  }

  Status score(RequestReader& reader, int64_t index) {
    const int64_t before = nll_.count;
    while (const std::optional<Emission> emission = reader.next()) {
      int32_t target = emission->prompt_first;
      for (const TokenLogprobs& entry : emission->prompt_logprobs) {
        if (target++ > window_ / 2) nll_.add(-entry.logprob);
      }
    }
    const int64_t scored = nll_.count - before;
    if (scored == window_ - 1 - window_ / 2 && std::isfinite(nll_.sum)) return ok_status();
    return internal_error(fmt::format("window {}: {} of {} targets were scored", index, scored,
                                      window_ - 1 - window_ / 2));
  }

  ModelStack& stack_;
  const std::vector<TokenId> ids_;
  const int32_t window_;
  NllSum nll_;
};

}  // namespace

Result<std::string> read_evaluated_text(const std::string& path) {
  if (path == "-") return std::string{std::istreambuf_iterator<char>(std::cin), {}};
  if (std::filesystem::is_directory(path)) {
    return invalid_argument(fmt::format("{}: is a folder, no text", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found(fmt::format("{}: cannot be opened", path));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad() || text.empty()) return invalid_argument(fmt::format("{}: holds no text", path));
  return text;
}

Result<Perplexity> measure_perplexity(ModelStack& stack, std::string_view text, int32_t window,
                                      const PerplexityProgress& progress) {
  if (stack.tokenizer() == nullptr) {
    return unsupported("the model has no vocabulary to tokenise the text with");
  }
  HR_ASSIGN_OR_RETURN(std::vector<TokenId> ids, stack.tokenizer()->encode(text));
  const auto text_tokens = static_cast<int64_t>(ids.size());
  if (text_tokens < window) {
    return invalid_argument(fmt::format("the text has {} tokens, less than one window of {} (-c)",
                                        text_tokens, window));
  }
  const double start = SystemClock().now_seconds();
  PerplexityMeasurement measurement(stack, std::move(ids), window);
  HR_RETURN_IF_ERROR(measurement.run(progress));
  const NllSum& nll = measurement.nll();
  return Perplexity{.perplexity = std::exp(nll.mean()),
                    .mean_nll = nll.mean(),
                    .stderr_nll = nll.standard_error(),
                    .text_tokens = text_tokens,
                    .windows = measurement.window_count(),
                    .scored = nll.count,
                    .seconds = SystemClock().now_seconds() - start};
}

}  // namespace headrace
