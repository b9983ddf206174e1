#include <array>

#include <fmt/format.h>

#include "models/decoder.h"
#include "models/llama.h"
#include "models/model.h"

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
