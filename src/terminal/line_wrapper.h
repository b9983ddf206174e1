// Breaks a line of styled text into rows between words, as the text comes: a word is laid out when
// its end is known, so that nothing laid out is ever taken back, and how the text was cut cannot
// matter. Wide characters may be parted from each other; a word that no row holds is broken
// between grapheme clusters.
#pragma once

#include <string>
#include <string_view>

#include "terminal/style.h"

namespace headrace {

class LineWrapper {
 public:
  explicit LineWrapper(int columns) { set_columns(columns); }

  // For the rows that are not full yet.
  void set_columns(int columns);
  int columns() const { return columns_; }

  // Begins a line whose first row has `first` in front, and the others `others`, which takes as
  // many columns.
  void begin(const StyledTexts& first, StyledTexts others, StyledTexts& out);
  // One character of it, no line end. REQUIRES: well-formed UTF-8
  void add(std::string_view character, const Style& style, StyledTexts& out);
  // Lays out what is held back and ends the row.
  void end(StyledTexts& out);

 private:
  void take_cluster(StyledTexts& out);
  void add_to_word(int columns, StyledTexts& out);
  void lay_out_word(StyledTexts& out);
  void begin_row(StyledTexts& out);

  int columns_ = 80;
  int column_ = 0;  // of the row, where the next text goes
  int indent_ = 0;  // columns of what is in front
  StyledTexts others_;
  std::string cluster_;  // may go on
  Style cluster_style_;
  StyledTexts spaces_;  // behind the last word laid out
  int space_columns_ = 0;
  StyledTexts word_;
  int word_columns_ = 0;
};

}  // namespace headrace
