// Any answer to any dialect's parser: the first byte picks the dialect, the second what is asked
// for, and where the text is cut. Events do not depend on the cuts, are well formed, and lose
// nothing but layout.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "base/rng.h"
#include "text/output/dialect_table.h"
#include "text/output/output_parser.h"
#include "text/output/output_samples.h"

using namespace headrace;

namespace {

using Kind = OutputEvent::Kind;

OutputEvents parse(const OutputDialect& dialect, const OutputOptions& options,
                   std::string_view text, uint64_t cut_seed) {
  const auto parser = make_output_parser(dialect, options);
  OutputEvents all;
  for (size_t begin = 0, piece = 0; begin < text.size(); ++piece) {
    const uint64_t bits = mix64(mix64(cut_seed) ^ piece);
    const size_t length = cut_seed == 0 ? text.size() : 1 + bits % (bits % 3 == 0 ? 24 : 3);
    OutputEvents events;
    parser->push(text.substr(begin, length), events);
    for (OutputEvent& event : events) append_event(all, std::move(event));
    begin += length;
  }
  OutputEvents events;
  parser->finish(events);
  for (OutputEvent& event : events) append_event(all, std::move(event));
  return all;
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Content and thoughts are the text, in order; how much of it (white space apart) they leave out.
size_t left_out(std::string_view text, const OutputEvents& events) {
  size_t at = 0, skipped = 0;
  for (const OutputEvent& event : events) {
    if (event.kind != Kind::kContent && event.kind != Kind::kReasoning) continue;
    for (char c : event.text) {
      while (at < text.size() && text[at] != c) skipped += is_space(text[at++]) ? 0 : 1;
      CHECK(at < text.size());
      ++at;
    }
  }
  for (; at < text.size(); ++at) skipped += is_space(text[at]) ? 0 : 1;
  return skipped;
}

// Calls are numbered, begin and end one after the other; returns how many there are.
int32_t check_calls(const OutputEvents& events, size_t text_bytes) {
  int32_t calls = 0;
  bool open = false;
  size_t bytes = 0;
  for (const OutputEvent& event : events) {
    bytes += event.text.size();
    if (event.kind == Kind::kCallBegin) {
      CHECK(!open && event.call == calls++ && !event.text.empty());
      open = true;
    } else if (event.kind == Kind::kCallEnd) {
      CHECK(open && event.call == calls - 1);
      open = false;
    } else if (event.kind == Kind::kArguments) {
      CHECK(open && event.call == calls - 1 && !event.text.empty());
    }
  }
  CHECK(!open);
  CHECK(bytes <= 12 * text_bytes + 16);  // U+0001 becomes six characters, an empty argument four
  return calls;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const auto kTools = std::make_shared<const ToolList>(*parse_json(output_sample_tools()));
  OutputDialect dialect;
  dialect.tools = &tool_dialects()[data[0] % tool_dialects().size()];
  const uint8_t asked = data[1];
  const auto reasoning = reasoning_dialects();
  dialect.reasoning = dialect.tools->harmony
                          ? &reasoning.front()
                          : &reasoning[1 + (asked >> 4) % (reasoning.size() - 1)];
  OutputOptions options;
  if (!(asked & 1)) options.tools = kTools;
  options.reasoning = !(asked & 2);
  options.starts_in_reasoning = (asked & 4) && !dialect.reasoning->in_content;
  options.one_call = asked & 8;
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);

  const OutputEvents whole = parse(dialect, options, text, 0);
  CHECK(parse(dialect, options, text, 1 + mix64(size) % 1000) == whole);
  CHECK(parse(dialect, options, text, 1001 + data[size - 1]) == whole);
  const int32_t calls = check_calls(whole, text.size());
  if (dialect.tools->harmony) return 0;  // headers are no text
  const size_t lost = left_out(text, whole);
  constexpr size_t kMarks = 1024;  // of one thought and of the words, and what touches them
  CHECK(calls > 0 || lost <= kMarks);
  return 0;
}
