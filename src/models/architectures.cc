#include <array>

#include <fmt/format.h>

#include "models/llama.h"
#include "models/model.h"

namespace headrace {

std::span<const Architecture> architectures() {
  static constexpr std::array kArchitectures = {
      Architecture{"llama", &parse_llama, &llama_tensors, &load_llama, &llama_hf_names},
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
