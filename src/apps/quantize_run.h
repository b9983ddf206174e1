// A run of `quantize`: what is read, by which text, to what; the order of its steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "quantize/quantizer.h"

namespace headrace {

struct QuantizeRunOptions {
  std::string model;  // a path
  std::string out;
  QuantizeOptions quantize;
  int64_t group = 0;        // 0: the largest of 128, 64 and 32 that divides all columns
  std::string calibration;  // a file; empty: the text that the program brings
  int32_t samples = 0;      // sequences; 0: 128, or as many as the program's own text has
  int32_t length = 512;     // tokens of each
  std::string perplexity;   // a file; empty: the end of the calibration text
  bool measures_perplexity = true;
  int32_t threads = 0;
};

// Prints a line a layer, and perplexity before and after. Errors are one line that names the thing.
Status run_quantize(const QuantizeRunOptions& options);

}  // namespace headrace
