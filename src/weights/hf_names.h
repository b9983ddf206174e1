// What an architecture's tensors are called in Hugging Face files. The rest of the program knows
// them by their GGUF names only; a table per architecture (a field of its row in
// models/architectures.cc) joins the two. The first row that matches a name decides.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// How a tensor of a Hugging Face file lies, where it is not as in a GGUF file.
enum class HfForm : uint8_t {
  kPlain,
  kTurned,  // [experts, columns, rows]; where it has two halves, rows of these by turns (gpt-oss)
  kTurnedHalves,  // [experts, columns, rows], gates' rows before ups' (Llama 4)
  kTurnedAlone,   // [columns, rows], a matrix by itself (GPT-2's Conv1D)
  kMxfp4,         // the same rows as MXFP4: blocks, beside a tensor of scales (hub_experts.h)
  kByTurns,       // [experts, 2 rows], of two halves by turns
  kRowsByTurns,   // [2 rows, columns], or a stack of such, rows of two halves by turns (Inkling)
  kFlat,        // [experts rows, columns], of as many experts as the layer's router has rows (DBRX)
  kFlatTurned,  // the same of [experts columns, rows]
  kIntegers,    // [rows, columns] of 32 or 64 bits, read as F32 (DeepSeek V4)
  kTurnedByWidth,  // kPlain where rows of the model are as wide as it says; else kTurnedHalves, and
                   // kTurned without a second half (Qwen 3 VL: the library's files, the hub's)
};

constexpr bool is_turned_stack(HfForm form) {
  return form == HfForm::kTurned || form == HfForm::kTurnedHalves || form == HfForm::kFlatTurned;
}
constexpr bool is_flat_stack(HfForm form) {
  return form == HfForm::kFlat || form == HfForm::kFlatTurned;
}

struct HfTensorName {
  // "{}" is the number of a layer, the same in both names; a second one, of `hf` alone, that of an
  // expert, whose tensor is a matrix of the stack that GGUF files have. A trailing "*" stands for
  // any rest.
  std::string_view hf;    // "model.layers.{}.self_attn.q_proj.weight"
  std::string_view gguf;  // "blk.{}.attn_q.weight"; empty: known, and not read (buffers, masks)
  // A GGUF file holds value + offset, in F32: Gemma's norms, which multiply by 1 + weight.
  float offset = 0;
  // Not empty: `gguf` is the upper half of the rows (of each of the stacked matrices), this the
  // lower.
  std::string_view second_half = {};
  HfForm form = HfForm::kPlain;
};

using HfTensorNames = std::span<const HfTensorName>;

// What a tensor of a Hugging Face file is here.
struct HfMatch {
  std::string gguf;  // empty: not read
  float offset = 0;
  int32_t expert = -1;      // a matrix of the stack; -1: the whole tensor
  std::string second_half;  // as above
  HfForm form = HfForm::kPlain;
};
// Empty where no row knows the name. Numbers are plain decimal without leading zeros.
std::optional<HfMatch> match_hf_name(HfTensorNames table, std::string_view hf);
// The same of a base class (Qwen3Model, GPT2Model), which saves its tensors without the name that
// it has in a class with a head, and of the text half of a model that also sees, of which other
// halves' tensors are not read.
std::optional<HfMatch> match_in_model(HfTensorNames table, std::string_view hf);
// The other way: the first row's name, of expert `expert` where each has a tensor; `gguf` itself
// where no row has it.
std::string hf_name_of(HfTensorNames table, std::string_view gguf, int32_t expert = 0);

// The names of Llama's files, which most families of decoders share (Mistral, Qwen, Phi-3, Granite,
// SmolLM3), and those of Mixtral's experts. A row that a family has no tensor for does no harm:
// tensors are held against what the architecture declares.
HfTensorNames llama_hf_names();
// The same with the experts of Qwen's and OLMoE's files.
HfTensorNames expert_hf_names();
HfTensorNames granite_moe_hf_names();
HfTensorNames phi_moe_hf_names();
// The names of `others`, but for what `first` has.
std::vector<HfTensorName> names_before(HfTensorNames first, HfTensorNames others);

}  // namespace headrace
