#include "terminal/table_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "terminal/cell_width.h"
#include "terminal/inline_markdown.h"
#include "terminal/line_wrapper.h"
#include "text/utf8.h"

namespace headrace {
namespace {

constexpr int kCellColumnsMin = 6;
constexpr std::string_view kBar = " │ ", kCrossing = "─┼─";
constexpr Style kLineStyle{.dim = true};

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The rows that a cell takes in `width` columns.
std::vector<StyledTexts> cell_rows(std::string_view cell, int width, const Style& style) {
  LineWrapper wrapper(width);
  StyledTexts laid_out;
  wrapper.begin({}, {}, laid_out);
  for (const StyledText& each : inline_markdown(cell, style)) {
    std::string_view rest = each.text;
    while (!rest.empty()) {
      const size_t length = utf8_step(rest).length;
      wrapper.add(rest.substr(0, length), each.style, laid_out);
      rest.remove_prefix(length);
    }
  }
  wrapper.end(laid_out);
  std::vector<StyledTexts> rows(1);
  for (const StyledText& each : laid_out) {
    std::string_view rest = each.text;
    for (size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
      append_styled(rows.back(), rest.substr(0, end), each.style);
      rows.emplace_back();
      rest.remove_prefix(end + 1);
    }
    append_styled(rows.back(), rest, each.style);
  }
  rows.pop_back();  // behind the last line's end
  return rows;
}

// No blanks behind a row's last cell: they would be copied with it.
void append_aligned(const StyledTexts& texts, int width, CellAlignment alignment, bool last,
                    StyledTexts& out) {
  const int room = std::max(0, width - text_columns(plain_text(texts)));
  const int left = alignment == CellAlignment::kRight    ? room
                   : alignment == CellAlignment::kCentre ? room / 2
                                                         : 0;
  append_styled(out, std::string(static_cast<size_t>(left), ' '), {});
  for (const StyledText& each : texts) append_styled(out, each.text, each.style);
  if (!last) append_styled(out, std::string(static_cast<size_t>(room - left), ' '), {});
}

// The widest columns give way until all fit.
void shrink_to_fit(std::vector<int>& widths, int columns) {
  const int bars = 3 * (static_cast<int>(widths.size()) - 1);
  while (std::accumulate(widths.begin(), widths.end(), bars) > columns) {
    const auto widest = std::max_element(widths.begin(), widths.end());
    if (*widest <= kCellColumnsMin) return;
    --*widest;
  }
}

}  // namespace

std::vector<std::string> table_cells(std::string_view line) {
  line = trimmed(line);
  if (line.starts_with('|')) line.remove_prefix(1);
  std::vector<std::string> cells(1);
  bool code = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '`') code = !code;
    if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') {
      cells.back() += line[++i];
    } else if (line[i] == '|' && !code) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  if (cells.size() > 1 && trimmed(cells.back()).empty()) cells.pop_back();
  for (std::string& cell : cells) cell = std::string(trimmed(cell));
  return cells;
}

std::optional<std::vector<CellAlignment>> table_alignments(std::string_view line) {
  std::vector<CellAlignment> alignments;
  for (std::string_view cell : table_cells(line)) {
    const bool left = cell.starts_with(':'), right = cell.ends_with(':');
    if (left) cell.remove_prefix(1);
    if (right && !cell.empty()) cell.remove_suffix(1);
    if (cell.empty() || cell.find_first_not_of('-') != cell.npos) return std::nullopt;
    alignments.push_back(right ? left ? CellAlignment::kCentre : CellAlignment::kRight
                               : CellAlignment::kLeft);
  }
  return alignments;
}

TableLayout::TableLayout(const std::vector<std::vector<std::string>>& rows,
                         std::vector<CellAlignment> alignments, int columns)
    : alignments_(std::move(alignments)), widths_(alignments_.size(), 1) {
  for (const auto& row : rows) {
    for (size_t i = 0; i < std::min(row.size(), widths_.size()); ++i) {
      widths_[i] = std::max(widths_[i], text_columns(plain_text(inline_markdown(row[i]))));
    }
  }
  shrink_to_fit(widths_, columns);
}

void TableLayout::append_heading(const std::vector<std::string>& cells, StyledTexts& out) const {
  append_cells(cells, {.bold = true}, out);
  for (size_t i = 0; i < widths_.size(); ++i) {
    if (i > 0) append_styled(out, kCrossing, kLineStyle);
    for (int column = 0; column < widths_[i]; ++column) append_styled(out, "─", kLineStyle);
  }
  append_styled(out, "\n", {});
}

void TableLayout::append_row(const std::vector<std::string>& cells, StyledTexts& out) const {
  append_cells(cells, {}, out);
}

void TableLayout::append_cells(const std::vector<std::string>& cells, const Style& style,
                               StyledTexts& out) const {
  std::vector<std::vector<StyledTexts>> rows_of_cells;
  size_t row_count = 1;
  for (size_t i = 0; i < widths_.size(); ++i) {
    const std::string_view cell = i < cells.size() ? std::string_view(cells[i]) : "";
    rows_of_cells.push_back(cell_rows(cell, widths_[i], style));
    row_count = std::max(row_count, rows_of_cells.back().size());
  }
  for (size_t row = 0; row < row_count; ++row) {
    for (size_t i = 0; i < widths_.size(); ++i) {
      if (i > 0) append_styled(out, kBar, kLineStyle);
      const std::vector<StyledTexts>& rows = rows_of_cells[i];
      append_aligned(row < rows.size() ? rows[row] : StyledTexts{}, widths_[i], alignments_[i],
                     i + 1 == widths_.size(), out);
    }
    append_styled(out, "\n", {});
  }
}

}  // namespace headrace
