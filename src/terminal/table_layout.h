// A table of markdown as rows of a terminal: columns aligned, cells that are too long broken inside
// of their column.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "terminal/style.h"

namespace headrace {

enum class CellAlignment : uint8_t { kLeft, kCentre, kRight };

// "| a | b |" -> {"a", "b"}; "\|" and bars within `code` part no cells.
std::vector<std::string> table_cells(std::string_view line);

// "|---|:-:|" -> one alignment a column; empty: it is no such line.
std::optional<std::vector<CellAlignment>> table_alignments(std::string_view line);

class TableLayout {
 public:
  // Widths are made for `rows`, of which the first is the heading; later rows are broken into them.
  // Columns beyond the heading's have no place.
  TableLayout(const std::vector<std::vector<std::string>>& rows,
              std::vector<CellAlignment> alignments, int columns);

  // The heading with the line below it, and a row.
  void append_heading(const std::vector<std::string>& cells, StyledTexts& out) const;
  void append_row(const std::vector<std::string>& cells, StyledTexts& out) const;

 private:
  void append_cells(const std::vector<std::string>& cells, const Style& style,
                    StyledTexts& out) const;

  std::vector<CellAlignment> alignments_;
  std::vector<int> widths_;
};

}  // namespace headrace
