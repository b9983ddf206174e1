// LoadPage: a run of the LoadClient as one HTML file with plots, which asks for nothing else: no
// script, no other file.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/load_client.h"
#include "bench/load_report.h"

namespace headrace {

struct LoadPage {
  std::vector<std::pair<std::string, std::string>> facts;  // of what ran where, shown first
  std::span<const LoadOutcome> outcomes;
  std::string more;  // lines of text below the figures
};

std::string to_html(const LoadPage& page);

// A file that is written when the run is over. What is in the way is told before it begins.
class LoadPageFile {
 public:
  // Empty: no page is wanted. A file that is there is replaced by write().
  static Result<LoadPageFile> open(const std::string& path);
  bool is_wanted() const { return !path_.empty(); }
  // kInvalidArgument: not everything was written (a full disk).
  Status write(const LoadPage& page) const;

 private:
  std::string path_;
};

}  // namespace headrace
