#include "terminal/markdown_renderer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "terminal/cell_width.h"
#include "text/utf8.h"

namespace headrace {
namespace {

constexpr int kTextColumnsMin = 16;
constexpr int kRuleColumnsMax = 60;
// What is held back is looked at with each character that comes: a line that is longer is text. A
// row of a table is known by its first mark.
constexpr size_t kHeldLineBytesMax = 512, kHeldRowBytesMax = 8192;
constexpr ptrdiff_t kTableColumnsMax = 64;  // of more: it is text
constexpr size_t kWidthRows = 5;            // of a table, that say how wide its columns are
constexpr int kCodeTabColumns = 4;
constexpr Style kFaint{.dim = true};

Style heading_style(int level) {
  return {.bold = true, .underline = level == 1, .colour = level <= 2 ? Colour::kCyan : Colour()};
}

std::string blanks(int count) { return std::string(static_cast<size_t>(std::max(0, count)), ' '); }

// Calls `each` with one character after the other.
template <class Each>
void for_each_character(std::string_view text, const Each& each) {
  while (!text.empty()) {
    const size_t length = utf8_step(text).length;
    each(text.substr(0, length));
    text.remove_prefix(length);
  }
}

size_t held_bytes_max(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  const bool row = first < kHeldLineBytesMax && line[first] == '|';
  return row ? kHeldRowBytesMax : kHeldLineBytesMax;
}

}  // namespace

struct MarkdownRenderer::Table {
  std::string first_line;
  std::vector<std::vector<std::string>> rows;
  std::vector<CellAlignment> alignments;  // empty: whether this is a table is not known yet
  std::unique_ptr<TableLayout> layout;    // none: widths are not known yet
};

MarkdownRenderer::MarkdownRenderer(int columns, Style base)
    : base_(base), wrapper_(std::max(columns, kTextColumnsMin)) {}

MarkdownRenderer::~MarkdownRenderer() = default;

void MarkdownRenderer::set_columns(int columns) {
  wrapper_.set_columns(std::max(columns, kTextColumnsMin));
}

void MarkdownRenderer::push(std::string_view text, StyledTexts& out) {
  for_each_character(safe_.push(text), [&](std::string_view c) { push_character(c, out); });
}

void MarkdownRenderer::finish(StyledTexts& out) {
  for_each_character(safe_.finish(), [&](std::string_view c) { push_character(c, out); });
  if (code_) {
    if (may_close_fence(fence_, line_, true)) line_.clear();
    push_code(std::exchange(line_, {}), out);
    end_code(out);
  } else if (state_ == Line::kText || !line_.empty()) {
    end_line(out);
    if (code_) end_code(out);
  }
  if (table_) end_table(out);
  blank_ = began_ = false;
}

void MarkdownRenderer::push_character(std::string_view character, StyledTexts& out) {
  if (code_) {
    push_code_line(character, out);
  } else if (character == "\n") {
    end_line(out);
  } else if (state_ == Line::kText) {
    push_text(character, out);
  } else {
    line_ += character;
    BlockStart start = block_start(line_, false);
    if (start.kind == BlockStart::Kind::kNeedsMore) {
      if (line_.size() < held_bytes_max(line_)) return;
      start = {.kind = BlockStart::Kind::kText};
    }
    begin_text(start, out);
  }
}

void MarkdownRenderer::end_line(StyledTexts& out) {
  if (state_ == Line::kText) {
    end_text(out);
  } else {
    end_held_line(out);
    line_.clear();
  }
}

void MarkdownRenderer::end_held_line(StyledTexts& out) {
  const BlockStart start = block_start(line_, true);
  switch (start.kind) {
    case BlockStart::Kind::kBlank:
      if (table_) end_table(out);
      blank_ = true;
      return;
    case BlockStart::Kind::kRule:
      begin_block(out);
      tell_rule("", out);
      return;
    case BlockStart::Kind::kFence:
      begin_code(start, out);
      return;
    case BlockStart::Kind::kTableRow:
      end_table_row(out);
      return;
    default:
      begin_text(start, out);
      end_text(out);
  }
}

// Every block but a table's later rows begins with this.
void MarkdownRenderer::begin_block(StyledTexts& out) {
  if (table_) end_table(out);
  if (blank_ && began_) append_styled(out, "\n", {});
  blank_ = false;
  began_ = true;
}

void MarkdownRenderer::begin_text(const BlockStart& start, StyledTexts& out) {
  begin_block(out);
  StyledTexts first, others;
  for (int i = 0; i < start.quotes; ++i) append_styled(first, "│ ", kFaint);
  others = first;
  std::string mark = blanks(start.indent);
  if (start.kind == BlockStart::Kind::kBullet) mark += "• ";
  if (start.kind == BlockStart::Kind::kNumber) mark += start.marker + " ";
  append_styled(first, mark, base_);
  append_styled(others, blanks(text_columns(mark)), base_);
  wrapper_.begin(first, std::move(others), out);
  const bool heading = start.kind == BlockStart::Kind::kHeading;
  inline_ = InlineMarkdown(heading ? nested_style(base_, heading_style(start.level)) : base_);
  state_ = Line::kText;
  const std::string rest = line_.substr(std::min(start.length, line_.size()));
  line_.clear();
  push_text(rest, out);
}

void MarkdownRenderer::push_text(std::string_view characters, StyledTexts& out) {
  inline_.push(characters, [&](std::string_view text, const Style& style) {
    for_each_character(text, [&](std::string_view c) { wrapper_.add(c, style, out); });
  });
}

void MarkdownRenderer::end_text(StyledTexts& out) {
  inline_.finish([&](std::string_view text, const Style& style) {
    for_each_character(text, [&](std::string_view c) { wrapper_.add(c, style, out); });
  });
  wrapper_.end(out);
  state_ = Line::kHeld;
}

void MarkdownRenderer::tell_rule(std::string_view label, StyledTexts& out) {
  const int columns = std::min(wrapper_.columns(), kRuleColumnsMax);
  std::string rule = label.empty() ? "" : fmt::format("── {} ", label);
  for (int column = text_columns(rule); column < columns; ++column) rule += "─";
  append_styled(out, rule, kFaint);
  append_styled(out, "\n", {});
}

void MarkdownRenderer::begin_code(const BlockStart& start, StyledTexts& out) {
  begin_block(out);
  fence_ = start;
  const std::string_view info = std::string_view(line_).substr(start.length);
  const size_t first = std::min(info.find_first_not_of(" \t{."), info.size());
  const std::string_view name = info.substr(first, info.find_first_of(" \t}{,", first) - first);
  tell_rule(prefix_of_columns(name, kTextColumnsMin / 2), out);
  code_ = std::make_unique<CodeHighlighter>(name);
  code_column_ = 0;
  state_ = Line::kHeld;
}

void MarkdownRenderer::push_code_line(std::string_view character, StyledTexts& out) {
  if (character == "\n") {
    const bool closes = state_ == Line::kHeld && may_close_fence(fence_, line_, true);
    if (!closes) push_code(line_ + "\n", out);
    line_.clear();
    state_ = Line::kHeld;
    if (closes) end_code(out);
    return;
  }
  if (state_ == Line::kCode) {
    push_code(character, out);
    return;
  }
  line_ += character;
  const bool held = line_.size() < kHeldLineBytesMax && may_close_fence(fence_, line_, false);
  if (held) return;
  state_ = Line::kCode;
  push_code(std::exchange(line_, {}), out);
}

// As it is: the terminal wraps what is too long, so that copied code has the lines that it had.
void MarkdownRenderer::push_code(std::string_view characters, StyledTexts& out) {
  const auto tell = [&](std::string_view text, const Style& style) {
    for_each_character(text, [&](std::string_view c) {
      const int tab = kCodeTabColumns - code_column_ % kCodeTabColumns;
      append_styled(out, c == "\t" ? blanks(tab) : std::string(c), nested_style(base_, style));
      code_column_ = c == "\n" ? 0 : code_column_ + (c == "\t" ? tab : cluster_columns(c));
    });
  };
  for_each_character(characters, [&](std::string_view c) { code_->push(c, tell); });
}

void MarkdownRenderer::end_code(StyledTexts& out) {
  code_->finish([&](std::string_view text, const Style& style) {
    append_styled(out, text, nested_style(base_, style));
    code_column_ += text_columns(text);
  });
  if (code_column_ > 0) append_styled(out, "\n", {});
  tell_rule("", out);
  code_.reset();
  state_ = Line::kHeld;
}

void MarkdownRenderer::end_table_row(StyledTexts& out) {
  const bool too_wide = std::count(line_.begin(), line_.end(), '|') > kTableColumnsMax + 1;
  if (too_wide && (!table_ || table_->alignments.empty())) {
    if (table_) end_table(out);
    tell_as_text(std::string(line_), out);
    return;
  }
  std::vector<std::string> cells = table_cells(line_);
  if (table_ && table_->alignments.empty()) {
    auto alignments = table_alignments(line_);
    if (alignments && alignments->size() == table_->rows[0].size()) {
      table_->alignments = *std::move(alignments);
      return;
    }
    end_table(out);
  }
  if (!table_) {
    table_ = std::make_unique<Table>();
    table_->first_line = line_;
    table_->rows.push_back(std::move(cells));
    return;
  }
  if (table_->layout) {
    table_->layout->append_row(cells, out);
    return;
  }
  table_->rows.push_back(std::move(cells));
  if (table_->rows.size() >= kWidthRows) lay_out_table(out);
}

void MarkdownRenderer::end_table(StyledTexts& out) {
  if (table_->alignments.empty()) {
    const std::unique_ptr<Table> none = std::move(table_);
    tell_as_text(none->first_line, out);
    return;
  }
  if (!table_->layout) lay_out_table(out);
  table_.reset();
}

void MarkdownRenderer::lay_out_table(StyledTexts& out) {
  std::unique_ptr<Table> table = std::move(table_);
  begin_block(out);
  table_ = std::move(table);
  table_->layout = std::make_unique<TableLayout>(table_->rows, std::move(table_->alignments),
                                                 wrapper_.columns());
  table_->alignments.assign(1, CellAlignment::kLeft);  // it is a table
  table_->layout->append_heading(table_->rows[0], out);
  for (size_t i = 1; i < table_->rows.size(); ++i) {
    table_->layout->append_row(table_->rows[i], out);
  }
  table_->rows.resize(1);
}

void MarkdownRenderer::tell_as_text(const std::string& line, StyledTexts& out) {
  std::string held = std::exchange(line_, line);
  begin_text({.kind = BlockStart::Kind::kText}, out);
  end_text(out);
  line_ = std::move(held);
}

}  // namespace headrace
