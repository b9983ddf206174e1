// Results as llama-bench writes them: its columns, its fields, its formats.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "bench/bench_measure.h"
#include "kv/kv_demand.h"

namespace headrace {

// What a row says of the set-up. Fields that have no meaning here hold llama-bench's defaults.
struct BenchSetup {
  std::string cpu_info;
  std::string gpu_info;  // the GPU's name; empty on the CPU
  std::string model_filename;
  std::string model_type;  // "llama Q4_1 + Q8_0"
  int64_t model_size = 0;  // bytes
  int64_t model_parameters = 0;
  int32_t batch_tokens = 0;
  int32_t threads = 0;
  std::string kv_type;  // "f16"
};
BenchSetup bench_setup(const ModelStack& stack);

enum class BenchFormat { kMarkdown, kJson, kJsonLines, kCsv };

// Rows come as they are measured; begin() and end() frame them. Each returns text to print.
class BenchReport {
 public:
  explicit BenchReport(BenchFormat format) : format_(format) {}
  std::string begin();
  std::string row(const BenchSetup& setup, const BenchResult& result);
  std::string end();

 private:
  const BenchFormat format_;
  int rows_ = 0;
};

// The shares of the pool's slots by what they hold (kKvWasteParts), and "waste": of those held.
Json kv_slots_json(const KvWaste& slots);
std::string kv_slots_text(const KvWaste& slots);

// One row's fields in llama-bench's order, n_streams after them; the samples are JSON's only.
Json::Object bench_fields(const BenchSetup& setup, const BenchResult& result, bool with_samples);

}  // namespace headrace
