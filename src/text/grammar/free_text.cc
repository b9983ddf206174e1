#include "text/grammar/free_text.h"

#include <map>
#include <string>
#include <vector>

namespace headrace {
namespace {

// How much of the mark the text ends with after one byte more (Knuth, Morris and Pratt 1977).
size_t matched_with(std::string_view mark, size_t matched, char byte) {
  std::string text(mark.substr(0, matched));
  text += byte;
  for (size_t skip = 0; skip < text.size(); ++skip) {
    const std::string_view end = std::string_view(text).substr(skip);
    if (mark.starts_with(end)) return end.size();
  }
  return 0;
}

std::string control_spelling(std::string_view mark) {
  return static_cast<char>(kMarkByte) + std::string(mark);
}

}  // namespace

GrammarPiece mark_grammar(GrammarBuilder& builder, std::string_view mark) {
  if (mark.empty()) return {};
  return builder.choice({builder.literal(mark), builder.literal(control_spelling(mark))});
}

void add_text_until(GrammarBuilder& builder, const GrammarPiece& rule, std::string_view mark,
                    const GrammarPiece& then, bool may_end) {
  // [i]: i bytes of the mark are there.
  std::vector<GrammarPiece> states = {rule};
  for (size_t i = 1; i < mark.size(); ++i) states.push_back(builder.declare());
  for (size_t i = 0; i < mark.size(); ++i) {
    std::map<size_t, ByteSet> next;
    for (int byte = 0; byte < 256; ++byte) {
      if (byte == kMarkByte) continue;
      next[matched_with(mark, i, static_cast<char>(byte))].add(static_cast<uint8_t>(byte));
    }
    for (const auto& [matched, bytes] : next) {
      const GrammarPiece& rest = matched == mark.size() ? then : states[matched];
      builder.add(states[i], GrammarBuilder::join({builder.bytes(bytes), rest}));
    }
    builder.add(states[i], GrammarBuilder::join({builder.literal(control_spelling(mark)), then}));
    if (may_end) builder.add(states[i], {});
  }
}

}  // namespace headrace
