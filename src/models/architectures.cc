#include <array>

#include <fmt/format.h>

#include "models/decoder.h"
#include "models/gemma.h"
#include "models/granite.h"
#include "models/llama.h"
#include "models/model.h"
#include "models/olmo2.h"
#include "models/phi3.h"
#include "models/qwen.h"
#include "models/smollm3.h"
#include "models/starcoder2.h"

namespace headrace {
namespace {

using MakeSpec = DecoderSpec (*)(const ModelConfig&);

// A row for an architecture that a DecoderSpec can say.
template <MakeSpec kMakeSpec>
constexpr Architecture decoder(std::string_view name, HfTensorNames (*hf_names)()) {
  return {.name = name,
          .parse = [](const ModelConfig& config) -> Result<ModelSpec> {
            return model_spec(kMakeSpec(config));
          },
          .tensors = [](const ModelConfig& config) { return decoder_tensors(kMakeSpec(config)); },
          .load =
              [](const ModelConfig& config, const WeightSource& weights, Device& device,
                 const ModelLoadOptions& options) {
                return load_decoder(kMakeSpec(config), weights, device, options);
              },
          .hf_names = hf_names};
}

}  // namespace

std::span<const Architecture> architectures() {
  static constexpr std::array kArchitectures = {
      decoder<llama_spec>("llama", llama_hf_names),
      decoder<qwen2_spec>("qwen2", llama_hf_names),
      decoder<qwen3_spec>("qwen3", llama_hf_names),
      decoder<gemma_spec>("gemma", gemma_hf_names),
      decoder<gemma2_spec>("gemma2", gemma2_hf_names),
      decoder<gemma3_spec>("gemma3", gemma3_hf_names),
      decoder<phi3_spec>("phi3", llama_hf_names),
      decoder<smollm3_spec>("smollm3", llama_hf_names),
      decoder<olmo2_spec>("olmo2", olmo2_hf_names),
      decoder<granite_spec>("granite", llama_hf_names),
      decoder<starcoder2_spec>("starcoder2", starcoder2_hf_names),
  };
  return kArchitectures;
}

Result<const Architecture*> find_architecture(std::string_view name) {
  std::string known;
  for (const Architecture& architecture : architectures()) {
    if (architecture.name == name) return &architecture;
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return unsupported(fmt::format("architecture \"{}\" is not supported (known: {})", name, known),
                     "general.architecture");
}

}  // namespace headrace
