#include "stack/embedding_stack.h"

#include <optional>
#include <utility>

namespace headrace {

Result<std::unique_ptr<EmbeddingStack>> EmbeddingStack::load(const StackOptions& options,
                                                             std::unique_ptr<ModelSource>& source) {
  if (options.pooling.runner == RunnerChoice::kGenerate) return std::unique_ptr<EmbeddingStack>();
  HR_ASSIGN_OR_RETURN(const std::optional<EncoderConfig> encoder, source->encoder());
  if (encoder) {
    HR_RETURN_IF_ERROR(check_encoder_pooling(options.pooling, *encoder, source->path()));
    return load_encoder_stack(options, std::move(source), *encoder);
  }
  HR_ASSIGN_OR_RETURN(auto in_files, source->pooling());
  HR_ASSIGN_OR_RETURN(const std::optional<PoolingConfig> config,
                      choose_pooling(options.pooling, std::move(in_files), source->path()));
  if (config) return load_pooled_decoder_stack(options, std::move(source), *config);
  return std::unique_ptr<EmbeddingStack>();
}

Result<std::unique_ptr<EmbeddingStack>> EmbeddingStack::load(const StackOptions& options) {
  HR_ASSIGN_OR_RETURN(auto source, open_model_source(options.model, options.load.architecture_map));
  return load(options, source);
}

}  // namespace headrace
