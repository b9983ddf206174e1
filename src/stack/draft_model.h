// The draft of a stack (--model-draft): a smaller model with the same tokens, or heads that were
// made for the stack's (draft_head_files.h), on the same device, which proposes what that verifies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "models/model.h"
#include "stack/draft_head_files.h"
#include "stack/model_files.h"
#include "stack/model_source.h"
#include "stack/stack_options.h"
#include "tensor/device.h"

namespace headrace {

struct DraftModel {
  std::unique_ptr<ModelSource> source;  // outlives the model
  ModelWeights weights;
  std::unique_ptr<Model> model;  // null: none, or Medusa heads
  std::optional<LoadedHead> head = {};

  const Model* layers() const { return head ? head->model.get() : model.get(); }
};

// Before a load: makes the method that of the draft's files where a draft is named and no method.
// Errors name what does not go together with one.
Status prepare_draft_options(StackOptions& options);

// What the draft is loaded for.
struct DraftTarget {
  const ModelConfig& config;
  const Tokenizer* tokenizer = nullptr;  // or null
  int32_t vocab_size = 0;
  ComputeType compute = ComputeType::kFast;
  // Of heads: the model, and its tensors.
  const ModelSpec* spec = nullptr;
  std::shared_ptr<const WeightSource> weights = nullptr;
};
// REQUIRES: prepare_draft_options(). Errors are one line that names the draft, and the first token
// that differs where its vocabulary is another.
Result<DraftModel> load_draft_model(const StackOptions& options, const DraftTarget& target,
                                    Device& device);

// Whether two vocabularies are one: the same text for each id, but for ids that no text has.
Status check_same_tokens(const Vocab& model, const Vocab& draft);

}  // namespace headrace
