#include "terminal/line_wrapper.h"

#include <algorithm>
#include <utility>

#include "terminal/cell_width.h"
#include "text/unicode.h"

namespace headrace {
namespace {

constexpr int kColumnsMin = 1;
constexpr size_t kClusterBytesMax = 64;  // of marks without end

// Wide punctuation that does not begin a row.
constexpr std::string_view kClosing = "、。，．：；？！）」』】〉》〕］｝”’ー";

bool is_closing(std::string_view cluster) { return kClosing.find(cluster) != kClosing.npos; }

}  // namespace

void LineWrapper::set_columns(int columns) { columns_ = std::max(columns, kColumnsMin); }

void LineWrapper::begin(const StyledTexts& first, StyledTexts others, StyledTexts& out) {
  others_ = std::move(others);
  indent_ = text_columns(plain_text(first));
  column_ = indent_;
  for (const StyledText& each : first) append_styled(out, each.text, each.style);
}

void LineWrapper::add(std::string_view character, const Style& style, StyledTexts& out) {
  const bool blank = character == " " || character == "\t";
  const bool goes_on = !blank && !cluster_.empty() && cluster_.size() < kClusterBytesMax &&
                       grapheme_length(cluster_ + std::string(character)) > cluster_.size();
  if (!goes_on) {
    take_cluster(out);
    cluster_style_ = style;
  }
  cluster_ += character;
  // Nothing that goes on with a blank is worth waiting for: the word before it can be told.
  if (blank) take_cluster(out);
}

void LineWrapper::end(StyledTexts& out) {
  take_cluster(out);
  lay_out_word(out);
  spaces_.clear();  // at the end of a line they show nothing
  space_columns_ = 0;
  append_styled(out, "\n", {});
  column_ = indent_ = 0;
}

void LineWrapper::take_cluster(StyledTexts& out) {
  if (cluster_.empty()) return;
  if (cluster_ == " " || cluster_ == "\t") {
    lay_out_word(out);
    append_styled(spaces_, " ", cluster_style_);
    ++space_columns_;
  } else {
    add_to_word(cluster_columns(cluster_), out);
  }
  cluster_.clear();
}

void LineWrapper::add_to_word(int columns, StyledTexts& out) {
  const bool wide = columns > 1 && !is_closing(cluster_);
  if (wide || word_columns_ + columns > columns_ - indent_) lay_out_word(out);
  append_styled(word_, cluster_, cluster_style_);
  word_columns_ += columns;
}

void LineWrapper::lay_out_word(StyledTexts& out) {
  if (word_.empty()) return;
  if (column_ > indent_ && column_ + space_columns_ + word_columns_ > columns_) {
    begin_row(out);
  } else {
    for (const StyledText& each : spaces_) append_styled(out, each.text, each.style);
    column_ += space_columns_;
  }
  for (const StyledText& each : word_) append_styled(out, each.text, each.style);
  column_ += word_columns_;
  word_.clear();
  spaces_.clear();
  word_columns_ = space_columns_ = 0;
}

void LineWrapper::begin_row(StyledTexts& out) {
  append_styled(out, "\n", {});
  for (const StyledText& each : others_) append_styled(out, each.text, each.style);
  column_ = indent_;
}

}  // namespace headrace
