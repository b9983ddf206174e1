// The golden file tests/data/golden/generation.jsonl: what fp32 arithmetic and llama.cpp say about
// the same prompts, position by position. One row is one prompt of one model.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace headrace {

using TopTokens = std::vector<std::pair<TokenId, double>>;  // id, ln p; best first

struct GoldenRow {
  std::string id;
  std::vector<TokenId> prompt;
  // llama.cpp's greedy continuation. All values below are conditioned on prompt + its first i ids
  // (teacher-forced), whatever the engine under test would have chosen.
  std::vector<TokenId> continuation;
  std::vector<TopTokens> fp32_top5;       // of the first 8 positions
  std::vector<TopTokens> llama_cpp_top5;  // of the first 8 positions
  std::vector<TopTokens> fp32_at_llama_cpp_top5;
  std::vector<double> fp32_gap;      // every position: ln p of fp32's best minus that of its second
  std::vector<TokenId> fp32_argmax;  // every position

  std::vector<TokenId> prompt_and_continuation() const;
};

// The rows of one model: "smollm2", "gemma3", "qwen2".
Result<std::vector<GoldenRow>> read_golden_rows(const std::string& path, std::string_view model);

struct GoldenPerplexity {
  size_t characters = 0;    // of the text, from its start
  std::string text_sha256;  // of those characters
  size_t token_count = 0;
  std::map<int, double> fp32, llama_cpp;  // by window length
};

Result<GoldenPerplexity> read_golden_perplexity(const std::string& path, std::string_view model);

}  // namespace headrace
