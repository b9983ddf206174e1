// Low-rank adapters on disk: a folder as Hugging Face PEFT writes it (adapter_config.json and
// adapter_model.safetensors; LoRA, Hu et al., 2021, and rsLoRA, Kalajdzievski, 2023), or a GGUF
// file as llama.cpp's convert_lora_to_gguf.py does. What is not read is refused by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/tensor_view.h"
#include "weights/hf_names.h"

namespace headrace {

// y += scale (x A^T) B^T beside the matrix `tensor`.
struct LoraPair {
  std::string tensor;       // GGUF name of the matrix: "blk.3.attn_q.weight"
  std::string module_name;  // as the file spells it, for messages
  ConstTensorView a;        // [R, in]
  ConstTensorView b;        // [out, R]
  float scale = 1.0f;       // alpha / R; of rsLoRA alpha / sqrt(R)
};

struct LoraFile {
  std::string path;
  std::vector<LoraPair> pairs;  // by `tensor`, which is unique
  // Rows of B lie as rows of a GGUF file's matrices do, which some families' q and k rows are
  // ordered anew for; else as in Hugging Face files.
  bool rows_as_gguf = false;
  std::shared_ptr<const void> memory;  // what the views look at

  const LoraPair* find(std::string_view tensor) const;  // nullptr: the adapter leaves it alone
  // Of all factors and scales, and where they belong; never 0.
  uint64_t checksum() const;
};

// `path`: a PEFT folder, or a .gguf file. `names`: the architecture's, by which PEFT's modules are
// known. kNotFound, kCorrupt, kUnsupported, as one line "file: field: what". Any thread.
Result<LoraFile> read_lora_file(const std::string& path, HfTensorNames names);

}  // namespace headrace
