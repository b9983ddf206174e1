#include "weights/gguf_fixture.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {
namespace {

std::string padded(std::string bytes, uint64_t alignment) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
  return bytes;
}

// UTF-8 of the character that byte-level vocabularies show a byte as: printable Latin-1 as itself,
// the rest from U+0100 on (GPT-2's table).
std::string shown_byte(int byte) {
  const auto plain = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!plain(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += plain(b) ? 0 : 1;
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace

std::string raw_string(std::string_view text) {
  return raw<uint64_t>(text.size()) + std::string(text);
}

std::string raw_array(uint32_t element_type, uint64_t count, std::string_view elements) {
  return raw(element_type) + raw(count) + std::string(elements);
}

GgufBuilder& GgufBuilder::add(std::string key, GgufValueType type, std::string value) {
  entries.push_back({std::move(key), static_cast<uint32_t>(type), std::move(value)});
  return *this;
}
GgufBuilder& GgufBuilder::add_u32(std::string key, uint32_t value) {
  return add(std::move(key), GgufValueType::kUint32, raw(value));
}
GgufBuilder& GgufBuilder::add_f32(std::string key, float value) {
  return add(std::move(key), GgufValueType::kFloat32, raw(value));
}
GgufBuilder& GgufBuilder::add_bool(std::string key, bool value) {
  return add(std::move(key), GgufValueType::kBool, raw<uint8_t>(value ? 1 : 0));
}
GgufBuilder& GgufBuilder::add_text(std::string key, std::string_view value) {
  return add(std::move(key), GgufValueType::kString, raw_string(value));
}
GgufBuilder& GgufBuilder::add_strings(std::string key, const std::vector<std::string>& values) {
  std::string elements;
  for (const std::string& value : values) elements += raw_string(value);
  return add(std::move(key), GgufValueType::kArray,
             raw_array(static_cast<uint32_t>(GgufValueType::kString), values.size(), elements));
}
GgufBuilder& GgufBuilder::add_ints(std::string key, const std::vector<int32_t>& values) {
  std::string elements;
  for (const int32_t value : values) elements += raw(value);
  return add(std::move(key), GgufValueType::kArray,
             raw_array(static_cast<uint32_t>(GgufValueType::kInt32), values.size(), elements));
}

GgufBuilder& GgufBuilder::remove(std::string_view key) {
  std::erase_if(entries, [&](const BuilderEntry& entry) { return entry.key == key; });
  return *this;
}

GgufBuilder& GgufBuilder::replace(std::string_view key, GgufValueType type, std::string value) {
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const auto& entry) { return entry.key == key; });
  CHECK(at != entries.end());
  at->type = static_cast<uint32_t>(type);
  at->value = std::move(value);
  return *this;
}

BuilderTensor& GgufBuilder::tensor(std::string_view name) {
  const auto at = std::find_if(tensors.begin(), tensors.end(),
                               [&](const auto& tensor) { return tensor.name == name; });
  CHECK(at != tensors.end());
  return *at;
}

GgufBuilder& GgufBuilder::add_tensor(std::string name, std::vector<uint64_t> ne, uint32_t type) {
  const GgufType* info = find_gguf_type(type);
  CHECK(info != nullptr && info->block_elements > 0);
  uint64_t elements = 1;
  for (const uint64_t n : ne) elements *= n;
  const uint64_t bytes = elements / static_cast<uint64_t>(info->block_elements) *
                         static_cast<uint64_t>(info->block_bytes);
  tensors.push_back({std::move(name), std::move(ne), type, std::string(bytes, '\0'), {}, {}});
  return *this;
}

std::string GgufBuilder::build() const {
  std::string file = raw(magic) + raw(version) + raw(tensor_count.value_or(tensors.size())) +
                     raw(entry_count.value_or(entries.size()));
  for (const BuilderEntry& entry : entries)
    file += raw_string(entry.key) + raw(entry.type) + entry.value;
  std::string data;
  for (const BuilderTensor& tensor : tensors) {
    file += raw_string(tensor.name) +
            raw(tensor.rank.value_or(static_cast<uint32_t>(tensor.ne.size())));
    for (const uint64_t n : tensor.ne) file += raw(n);
    file += raw(tensor.type) + raw(tensor.offset.value_or(data.size()));
    data = padded(data + tensor.data, alignment);
  }
  return padded(file, alignment) + data;
}

GgufBuilder tiny_llama() {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|user|>"};
  std::vector<int32_t> kinds = {3, 3, 3, 4};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(shown_byte(byte));
  for (const char* merged : {"th", "he", "the", "an"}) tokens.push_back(merged);
  kinds.resize(tokens.size(), 1);

  GgufBuilder builder;
  builder.add_text("general.architecture", "llama")
      .add_text("general.name", "tiny")
      .add_u32("llama.block_count", 1)
      .add_u32("llama.context_length", 128)
      .add_u32("llama.embedding_length", 32)
      .add_u32("llama.feed_forward_length", 64)
      .add_u32("llama.attention.head_count", 2)
      .add_u32("llama.attention.head_count_kv", 1)
      .add_f32("llama.rope.freq_base", 10000.0f)
      .add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .add_u32("llama.vocab_size", 264)
      .add_u32("llama.rope.dimension_count", 16)
      .add_text("tokenizer.ggml.model", "gpt2")
      .add_text("tokenizer.ggml.pre", "smollm")
      .add_strings("tokenizer.ggml.tokens", tokens)
      .add_ints("tokenizer.ggml.token_type", kinds)
      .add_strings("tokenizer.ggml.merges", {"t h", "h e", "th e", "a n"})
      .add_u32("tokenizer.ggml.bos_token_id", 1)
      .add_u32("tokenizer.ggml.eos_token_id", 2)
      .add_bool("tokenizer.ggml.add_bos_token", false)
      .add_text("tokenizer.chat_template", "{% for m in messages %}{{ m['content'] }}{% endfor %}");
  constexpr uint32_t kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kBF16 = 30;
  builder.add_tensor("token_embd.weight", {32, 264}, kQ4_1)
      .add_tensor("blk.0.attn_norm.weight", {32}, kF32)
      .add_tensor("blk.0.attn_q.weight", {32, 32}, kQ4_0)
      .add_tensor("blk.0.attn_k.weight", {32, 16}, kF16)
      .add_tensor("blk.0.attn_v.weight", {32, 16}, kBF16)
      .add_tensor("blk.0.attn_output.weight", {32, 32}, kQ8_0)
      .add_tensor("blk.0.ffn_norm.weight", {32}, kF32)
      .add_tensor("blk.0.ffn_gate.weight", {32, 64}, kQ4_1)
      .add_tensor("blk.0.ffn_up.weight", {32, 64}, kQ4_0)
      .add_tensor("blk.0.ffn_down.weight", {64, 32}, kQ8_0)
      .add_tensor("output_norm.weight", {32}, kF32);
  return builder;
}

}  // namespace headrace
