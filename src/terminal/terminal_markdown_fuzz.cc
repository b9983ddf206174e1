// Any bytes as a model's answer: what is shown does not depend on how they were cut, and holds
// nothing that a terminal would obey.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "terminal/markdown_renderer.h"
#include "terminal/safe_text.h"

namespace {

using headrace::MarkdownRenderer;
using headrace::StyledTexts;

// In pieces of so many bytes.
StyledTexts render(std::string_view text, int columns, size_t piece) {
  StyledTexts out;
  MarkdownRenderer renderer(columns);
  while (!text.empty()) {
    const std::string_view part = text.substr(0, piece);
    renderer.push(part, out);
    text.remove_prefix(part.size());
  }
  renderer.finish(out);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const int columns = 8 + data[0] % 100;
  const size_t piece = 1 + data[1] % 16;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const StyledTexts whole = render(text, columns, text.size() + 1);
  CHECK(headrace::ansi_text(render(text, columns, piece)) == headrace::ansi_text(whole));
  const std::string shown = headrace::plain_text(whole);
  CHECK(headrace::terminal_safe(shown) == shown);
  return 0;
}
