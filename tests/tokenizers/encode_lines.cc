// Token ids of many texts, for comparison with other implementations (compare_with_hf.py).
//
//   encode_lines VOCABULARY [--parse-special] [--no-special] < TEXTS > IDS
//
// VOCABULARY is a .gguf file or a tokenizer.json; TEXTS has one JSON string a line, IDS one JSON
// object a line: {"ids": [...], "text": what the ids decode to} or {"error": ...}.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "base/json.h"
#include "stack/gguf_vocab.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

using namespace headrace;

namespace {

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& path) {
  if (path.ends_with(".json")) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    HR_ASSIGN_OR_RETURN(Vocab vocab, vocab_from_tokenizer_json({.tokenizer = text}));
    return Tokenizer::create(std::move(vocab));
  }
  HR_ASSIGN_OR_RETURN(auto file, GgufFile::open(path));
  HR_ASSIGN_OR_RETURN(Vocab vocab, vocab_from_gguf(*file, file));
  return Tokenizer::create(std::move(vocab));
}

Json encode_line(const Tokenizer& tokenizer, const std::string& line, EncodeOptions options) {
  const Result<Json> text = parse_json(line);
  if (!text.ok()) return Json::object().set("error", Json(text.status().message()));
  const auto ids = tokenizer.encode(text->as_string(), options);
  if (!ids.ok()) return Json::object().set("error", Json(ids.status().message()));
  Json array = Json::array();
  for (const TokenId id : *ids) array.push(Json(static_cast<int64_t>(id)));
  return Json::object()
      .set("ids", std::move(array))
      .set("text", Json(replace_invalid_utf8(tokenizer.decode(*ids, false))));
}

}  // namespace

int main(int argc, char** argv) {
  EncodeOptions options;
  std::string path;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--parse-special") {
      options.parse_special = true;
    } else if (argument == "--no-special") {
      options.add_special = false;
    } else {
      path = argument;
    }
  }
  const auto tokenizer = open_tokenizer(path);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().message().c_str());
    return 1;
  }
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << write_json(encode_line(**tokenizer, line, options)) << '\n';
  }
  return 0;
}
