// Everything that `headrace inspect` shows, as data: filled from the model, printed as text or
// JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stack/model_files.h"
#include "stack/model_source.h"

namespace headrace {

struct TypeShare {
  std::string_view name;
  bool readable = false;
  int64_t tensors = 0;
  int64_t bytes = 0;
};

// Layers that keep the same keys and values.
struct KvShare {
  int32_t window = 0;  // tokens; 0 = the whole context
  int32_t layers = 0;
  int64_t token_bytes = 0;  // of one token in all these layers
};

struct InspectReport {
  std::unique_ptr<ModelSource> source;
  SourceTitle title;
  ModelWeights weights;
  ModelText text;
  SamplingDefaults sampling;     // that its makers suggest
  std::vector<TypeShare> types;  // the most bytes first
  int64_t tensor_count = 0;
  int64_t tensor_bytes = 0;
  std::vector<KvShare> kv;       // in f16; empty where the architecture is not known
  int64_t context = 0;           // of the memory plan
  int64_t state_bytes = 0;       // of a sequence, whatever its length; 0: no layer keeps a state
  int64_t kv_context_bytes = 0;  // that one sequence of so many tokens holds, in whole pages
  int64_t kv_seen_bytes = 0;     // of these, keys and values that its last token attends to
  int64_t kv_page_bytes = 0;
  int64_t kv_group_count = 0;
  std::vector<std::string> problems;  // why it does not run here; empty: it does

  int64_t kv_token_bytes() const;  // of one token in every layer
};

// `context`: of the memory plan, 0 = the model's own.
InspectReport make_report(std::unique_ptr<ModelSource> source, int32_t context);

// "llama3", as config.json spells it; "none".
std::string_view rope_scaling_name(RopeScaling::Kind kind);

std::string text_report(const InspectReport& report, bool list_tensors);
std::string json_report(const InspectReport& report, bool list_tensors);

}  // namespace headrace
