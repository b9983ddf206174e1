#include "golden_rows.h"

#include <fstream>
#include <iterator>

#include "base/json.h"

namespace headrace {
namespace {

const Json& member(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  CHECK(found != nullptr);
  return *found;
}

std::vector<TokenId> to_ids(const Json& array) {
  std::vector<TokenId> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

std::vector<double> to_numbers(const Json& array) {
  std::vector<double> numbers;
  for (const Json& number : array.as_array()) numbers.push_back(number.as_double());
  return numbers;
}

// [[[id, ln p], ...], ...]
std::vector<TopTokens> to_tops(const Json& positions) {
  std::vector<TopTokens> tops;
  for (const Json& position : positions.as_array()) {
    TopTokens& top = tops.emplace_back();
    for (const Json& entry : position.as_array()) {
      const Json::Array& pair = entry.as_array();
      top.emplace_back(static_cast<TokenId>(pair[0].as_int()), pair[1].as_double());
    }
  }
  return tops;
}

// fp32's best token is the one llama.cpp took, but where the file lists a flip.
std::vector<TokenId> fp32_argmax(const std::vector<TokenId>& continuation, const Json& flips) {
  std::vector<TokenId> best = continuation;
  for (const Json& flip : flips.as_array()) {
    best.at(member(flip, "pos").as_int()) = static_cast<TokenId>(member(flip, "fp32").as_int());
  }
  return best;
}

GoldenRow to_row(const Json& json) {
  const Json& fp32 = member(json, "fp32");
  const Json& llama_cpp = member(json, "llama_cpp");
  GoldenRow row;
  row.id = member(json, "id").as_string();
  row.prompt = to_ids(member(json, "prompt_ids"));
  row.continuation = to_ids(member(llama_cpp, "gen_ids"));
  row.fp32_top5 = to_tops(member(fp32, "top5"));
  row.llama_cpp_top5 = to_tops(member(llama_cpp, "top5"));
  row.fp32_at_llama_cpp_top5 = to_tops(member(fp32, "at_lcpp_top5"));
  row.fp32_gap = to_numbers(member(fp32, "gap12"));
  row.fp32_argmax = fp32_argmax(row.continuation, member(fp32, "flips"));
  return row;
}

}  // namespace

std::vector<TokenId> GoldenRow::prompt_and_continuation() const {
  std::vector<TokenId> ids = prompt;
  ids.insert(ids.end(), continuation.begin(), continuation.end());
  return ids;
}

Result<std::vector<GoldenRow>> read_golden_rows(const std::string& path, std::string_view model) {
  std::ifstream file(path);
  if (!file) return not_found(path + ": cannot be opened (tests run from the source root)");
  std::vector<GoldenRow> rows;
  for (std::string line; std::getline(file, line);) {
    HR_ASSIGN_OR_RETURN(const Json json, parse_json(line));
    if (member(json, "model").as_string() == model) rows.push_back(to_row(json));
  }
  return rows;
}

Result<GoldenPerplexity> read_golden_perplexity(const std::string& path,
                                                std::string_view model_name) {
  std::ifstream file(path);
  if (!file) return not_found(path + ": cannot be opened (tests run from the source root)");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  HR_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  const Json& model = member(json, model_name);
  return GoldenPerplexity{.characters = static_cast<size_t>(member(model, "chars").as_int()),
                          .text_sha256 = member(model, "text_sha256").as_string(),
                          .token_count = static_cast<size_t>(member(model, "n_tokens").as_int()),
                          .fp32 = {{512, member(model, "fp32_c512").as_double()},
                                   {2048, member(model, "fp32_c2048").as_double()}},
                          .llama_cpp = {{512, member(model, "llama_cpp_c512").as_double()},
                                        {2048, member(model, "llama_cpp_c2048").as_double()}}};
}

}  // namespace headrace
