// What an interrupted run has done: a small file beside what is being made, written anew after each
// layer and gone when all is whole.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace headrace {

class QuantizeJournal {
 public:
  // `settings`: all that the result depends on.
  QuantizeJournal(std::string path, Json settings);

  // The errors of the layers that a run with the same settings has done; empty: none has.
  std::vector<double> read() const;
  Status write(const std::vector<double>& errors) const;
  void remove() const;

 private:
  const std::string path_;
  const Json settings_;
};

}  // namespace headrace
