// The draft model of a stack (--model-draft): a smaller model with the same tokens, on the same
// CPU, which proposes what the stack's model verifies.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "models/model.h"
#include "stack/model_files.h"
#include "stack/model_source.h"
#include "stack/stack_options.h"
#include "tensor/device.h"

namespace headrace {

struct DraftModel {
  std::unique_ptr<ModelSource> source;  // outlives the model
  ModelWeights weights;
  std::unique_ptr<Model> model;
};

// Before a load: makes draft_model the method where a draft is named and no method. Errors name
// what does not go together with one.
Status prepare_draft_options(StackOptions& options);

// What the draft is loaded for.
struct DraftTarget {
  const ModelConfig& config;
  const Tokenizer* tokenizer = nullptr;  // or null
  int32_t vocab_size = 0;
  ComputeType compute = ComputeType::kFast;
};
// REQUIRES: prepare_draft_options(). Errors are one line that names the draft, and the first token
// that differs where its vocabulary is another.
Result<DraftModel> load_draft_model(const StackOptions& options, const DraftTarget& target,
                                    Device& device);

// Whether two vocabularies are one: the same text for each id, but for ids that no text has.
Status check_same_tokens(const Vocab& model, const Vocab& draft);

}  // namespace headrace
