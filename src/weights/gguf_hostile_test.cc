// Files made to hurt a reader: one for each way in which GGUF readers have been broken (counts,
// lengths, dimensions, offsets, types, alignment, overlap, nesting, truncation). Each must be
// refused with a message of its own that names the field, without touching a byte outside the
// file and without memory that the file's size does not justify.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <new>

#include "tensor/quantised_row.h"
#include "weights/gguf.h"
#include "weights/gguf_fixture.h"
#include "weights/model_config.h"

#ifdef HEADRACE_SANITIZED
constexpr bool kSanitized = true;  // their shadow memory does not live under an address-space limit
#else
constexpr bool kSanitized = false;
#endif

namespace headrace::gguf_hostile_test {
namespace {

// Bytes that end at a page which may not be touched.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::string_view text) : size_(text.size()) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    mapped_ = (size_ + page - 1) / page * page + page;
    base_ = static_cast<std::byte*>(
        ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(base_ != MAP_FAILED);
    first_ = base_ + mapped_ - page - size_;
    if (size_ > 0) std::memcpy(first_, text.data(), size_);
    CHECK(::mprotect(base_ + mapped_ - page, page, PROT_NONE) == 0);
  }
  ~GuardedBytes() { ::munmap(base_, mapped_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  std::span<const std::byte> bytes() const { return {first_, size_}; }

 private:
  size_t size_, mapped_;
  std::byte *base_, *first_;
};

// Everything this folder does with a file: parse, configure, read every tensor.
Status read_all(std::span<const std::byte> bytes) {
  HR_ASSIGN_OR_RETURN(const auto file, GgufFile::from_memory(bytes, "h.gguf"));
  HR_ASSIGN_OR_RETURN(const ModelConfig config, model_config_from_gguf(*file));
  for (const GgufTensor& tensor : file->plan().tensors) {
    HR_ASSIGN_OR_RETURN(const ConstTensorView view, file->view(tensor));
    const int64_t columns = view.columns();
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t i = 0; i < tensor.elements / columns; ++i) {
      dequantise_row(view.dtype, {view.row(i), static_cast<size_t>(view.row_stride)}, row);
    }
  }
  return ok_status();
}

struct HostileFile {
  std::string name;
  std::string bytes;
  std::string expected;  // part of the message: the field and what is wrong with it
};

constexpr uint64_t kMax = UINT64_MAX;
constexpr uint32_t kArray = 9, kString = 8, kUint32 = 4, kUint8 = 0, kF32 = 0;

class HostileFiles {
 public:
  std::vector<HostileFile> all() {
    header();
    counts();
    keys();
    strings();
    values();
    arrays();
    alignment();
    tensor_table();
    dimensions();
    placement();
    sizes();
    head_sizes();
    constants();
    vocabulary();
    return std::move(files_);
  }

 private:
  void add(std::string_view name, std::string bytes, std::string_view expected) {
    files_.push_back({std::string(name), std::move(bytes), std::string(expected)});
  }
  // tiny_llama() with one thing changed.
  void changed(std::string_view name, std::string_view expected,
               const std::function<void(GgufBuilder&)>& change) {
    GgufBuilder builder = tiny_llama();
    change(builder);
    add(name, builder.build(), expected);
  }
  void with_key(std::string_view name, BuilderEntry entry, std::string_view expected) {
    changed(name, expected,
            [&](GgufBuilder& b) { b.entries.insert(b.entries.begin(), std::move(entry)); });
  }
  void with_last_key(std::string_view name, BuilderEntry entry, std::string_view expected) {
    GgufBuilder builder;
    builder.alignment = 1;  // no padding behind the key
    builder.entries.push_back(std::move(entry));
    std::string bytes = builder.build();
    add(name, std::move(bytes), expected);
  }
  void with_u32(const std::string& key, uint32_t value, std::string_view expected) {
    changed(key + "=" + std::to_string(value), expected,
            [&](GgufBuilder& b) { b.replace(key, GgufValueType::kUint32, raw(value)); });
  }
  void with_f32(const std::string& key, float value, std::string_view expected) {
    changed(key + "=" + std::to_string(value), expected,
            [&](GgufBuilder& b) { b.replace(key, GgufValueType::kFloat32, raw(value)); });
  }
  void with_dims(std::string_view name, std::vector<uint64_t> ne, std::string_view expected) {
    changed(name, expected,
            [&](GgufBuilder& b) { b.tensor("blk.0.attn_q.weight").ne = std::move(ne); });
  }
  void with_offset(std::string_view name, const std::string& tensor, uint64_t offset,
                   std::string_view expected) {
    changed(name, expected, [&](GgufBuilder& b) { b.tensor(tensor).offset = offset; });
  }

  void header() {
    add("empty file", "", "magic: file ends at byte 0");
    add("half a magic", "GG", "magic: file ends at byte 2");
    add("other magic", std::string("GGML") + std::string(64, '\0'), "magic: not a GGUF file");
    changed("version 0", "version: GGUF version 0 ", [](GgufBuilder& b) { b.version = 0; });
    changed("version 1", "version: GGUF version 1 ", [](GgufBuilder& b) { b.version = 1; });
    changed("version 4", "version: GGUF version 4 ", [](GgufBuilder& b) { b.version = 4; });
    changed("version -1", "version: GGUF version 4294967295",
            [](GgufBuilder& b) { b.version = UINT32_MAX; });
    changed("big-endian", "version: big-endian", [](GgufBuilder& b) { b.version = 0x03000000; });
  }

  void counts() {
    const auto keys = [&](const char* name, uint64_t count, const char* expected) {
      changed(name, expected, [&](GgufBuilder& b) { b.entry_count = count; });
    };
    keys("key count 2^32-1", UINT32_MAX, "metadata_kv_count: 4294967295 entries need");
    keys("key count -1", kMax, "metadata_kv_count: 18446744073709551615 entries need");
    keys("key count max / size", kMax / 14 + 2,
         "metadata_kv_count: 1317624576693539403 entries need");
    keys("key count 0", 0, "tensor general.architecture: 8 dimensions");  // keys read as tensors
    keys("one key too many", 22, "tensor 0: string length 74309393851613184 is more");
    const auto tensors = [&](const char* name, uint64_t count, const char* expected) {
      changed(name, expected, [&](GgufBuilder& b) { b.tensor_count = count; });
    };
    tensors("tensor count 2^32-1", UINT32_MAX, "tensor_count: 4294967295 entries need");
    tensors("tensor count -1", kMax, "tensor_count: 18446744073709551615 entries need");
    tensors("tensor count max / size", kMax / 33 + 2,
            "tensor_count: 558992244657865202 entries need");
    tensors("one tensor too many", 12, "tensor 11: the name is empty");
    tensors("tensor count 0", 0, "tensor token_embd.weight: missing");
    std::string many =
        raw<uint32_t>(0x46554747) + raw<uint32_t>(3) + raw<uint64_t>(0) + raw<uint64_t>(70'000);
    add("70,000 keys", many + std::string(70'000 * 14, '\0'),
        "metadata_kv_count: 70000 entries are over the limit");
    many = raw<uint32_t>(0x46554747) + raw<uint32_t>(3) + raw<uint64_t>(80'000) + raw<uint64_t>(0);
    add("80,000 tensors", many + std::string(80'000 * 33, '\0'),
        "tensor_count: 80000 entries are over the limit");
  }

  void keys() {
    with_key("empty key", {"", kUint32, raw(1u)}, "metadata key 0: the key is empty");
    with_key("key of 65,536 bytes", {std::string(65'536, 'k'), kUint32, raw(1u)},
             "metadata key 0: the key has 65536 bytes");
    with_key("duplicate key", {"llama.block_count", kUint32, raw(7u)},
             "llama.block_count: this metadata key is there twice");
    with_key("key of control characters", {"a\x1b[2J\n", 13, raw(1u)},
             "a\\x1b[2J\\x0a: value type 13 does not exist");
    // A key whose own length lies.
    const auto key_length = [&](const char* name, uint64_t length, const char* expected) {
      std::string bytes = tiny_llama().build();
      bytes.replace(24, 8, raw(length));
      add(name, bytes, expected);
    };
    key_length("key length 2^63", 1ull << 63,
               "metadata key 0: string length 9223372036854775808 is more");
    key_length("key length -1", kMax, "metadata key 0: string length 18446744073709551615 is more");
    key_length("key length -8", kMax - 7,
               "metadata key 0: string length 18446744073709551608 is more");
    key_length("key length one less", 19, "general.architectur: value type");
  }

  void strings() {
    const auto length = [&](const char* name, uint64_t value, const char* expected) {
      with_key(name, {"s", kString, raw(value)}, expected);
    };
    length("string length 2^63", 1ull << 63, "s: string length 9223372036854775808 is more");
    length("string length -1", kMax, "s: string length 18446744073709551615 is more");
    length("string length 2^31", 1ull << 31, "s: string length 2147483648 is more");
    with_last_key("string length cut", {"last", kString, raw<uint32_t>(3)},
                  "last: file ends at byte");
  }

  void values() {
    with_key("value type -1", {"v", UINT32_MAX, raw(1u)},
             "v: value type 4294967295 does not exist");
    with_key("bool 2", {"flag", 7, raw<uint8_t>(2)}, "flag: a bool is 0 or 1, not 2");
    changed(
        "architecture is a number", "general.architecture: is uint32, expected a string",
        [](GgufBuilder& b) { b.replace("general.architecture", GgufValueType::kUint32, raw(1u)); });
    changed("architecture missing", "general.architecture: missing",
            [](GgufBuilder& b) { b.remove("general.architecture"); });
    changed("architecture unknown", "general.architecture: \"gpt\\x07\" is not supported",
            [](GgufBuilder& b) {
              b.replace("general.architecture", GgufValueType::kString, raw_string("gpt\x07"));
            });
  }

  void arrays() {
    const auto array = [&](const char* name, const std::string& value, const char* expected) {
      with_key(name, {"a", kArray, value}, expected);
    };
    array("array count -1", raw_array(kUint8, kMax, "x"),
          "a: array of 18446744073709551615 x uint8 needs");
    array("array count max / size", raw_array(kUint32, kMax / 4 + 2, "x"),
          "a: array of 4611686018427387905 x uint32");
    array("array count 2^61 of 8 bytes", raw_array(10, 1ull << 61, "x"),
          "a: array of 2305843009213693952 x uint64");
    array("array count 2^32-1 of strings", raw_array(kString, UINT32_MAX, raw_string("x")),
          "a: array of 4294967295 x string needs");
    array("element type 13", raw_array(13, 1, "x"), "a: array element type 13 does not exist");
    array("element type -1", raw_array(UINT32_MAX, 1, "x"),
          "a: array element type 4294967295 does not exist");
    array("array of arrays", raw_array(kArray, 1, raw_array(kUint8, 1, "x")),
          "a: an array of arrays");
    array("bool array with a 7", raw_array(7, 3, std::string("\1\7\0", 3)),
          "a: element 1 of a bool array is 7");
    array("string element length 2^63", raw_array(kString, 2, raw_string("ok") + raw(1ull << 63)),
          "a: element 1 has length 9223372036854775808");
    array("string element length -1", raw_array(kString, 1, raw(kMax)),
          "a: element 0 has length 18446744073709551615");
    std::string nested;
    for (int i = 0; i < 10'000; ++i) nested += raw_array(kArray, 1, "");
    with_key("10,000 nested arrays", {"nested", kArray, nested}, "nested: an array of arrays");
    with_last_key("strings run out",
                  {"tokens", kArray, raw_array(kString, 3, raw_string("0123456789abcdef01234567"))},
                  "tokens: file ends before element");
  }

  void alignment() {
    const auto value = [&](const char* name, GgufValueType type, std::string bytes,
                           const char* expected) {
      with_key(name, {"general.alignment", static_cast<uint32_t>(type), std::move(bytes)},
               expected);
    };
    value("alignment 0", GgufValueType::kUint32, raw(0u), "general.alignment: 0 is no power");
    value("alignment 3", GgufValueType::kUint32, raw(3u), "general.alignment: 3 is no power");
    value("alignment 1", GgufValueType::kUint32, raw(1u), "general.alignment: 1 is no power");
    value("alignment -32", GgufValueType::kInt32, raw(-32), "general.alignment: -32 is no power");
    value("alignment 2^63", GgufValueType::kUint64, raw(1ull << 63),
          "general.alignment: 9223372036854775808 is beyond 63 bits");
    value("alignment a string", GgufValueType::kString, raw_string("32"),
          "general.alignment: is string, expected an");
    value("alignment 2^62", GgufValueType::kUint64, raw(1ull << 62),
          "which has 0 bytes of tensor data");
  }

  void tensor_table() {
    changed("duplicate tensor", "blk.0.attn_norm.weight: this tensor name is there twice",
            [](GgufBuilder& b) { b.add_tensor("blk.0.attn_norm.weight", {32}, kF32); });
    changed("tensor name of 129 bytes", "tensor 0: the name has 129 bytes",
            [](GgufBuilder& b) { b.tensors[0].name.assign(129, 'n'); });
    const auto type = [&](const char* name, uint32_t id, const char* expected) {
      changed(name, expected, [&](GgufBuilder& b) { b.tensor("blk.0.ffn_down.weight").type = id; });
    };
    type("type 42", 42, "tensor blk.0.ffn_down.weight: type 42 is not known");
    type("type -1", UINT32_MAX, "tensor blk.0.ffn_down.weight: type 4294967295 is not known");
    type("type removed", 4, "tensor blk.0.ffn_down.weight: type Q4_2 was removed");
    type("type not readable", 39, "tensor blk.0.ffn_down.weight: type MXFP4 is not supported yet");
  }

  void dimensions() {
    const auto rank = [&](const char* name, uint32_t value, const char* expected) {
      changed(name, expected,
              [&](GgufBuilder& b) { b.tensor("blk.0.attn_q.weight").rank = value; });
    };
    rank("no dimensions", 0, "tensor blk.0.attn_q.weight: 0 dimensions");
    rank("5 dimensions", 5, "tensor blk.0.attn_q.weight: 5 dimensions");
    rank("2^32-1 dimensions", UINT32_MAX, "tensor blk.0.attn_q.weight: 4294967295 dimensions");
    with_dims("dimension 0", {0, 32}, "tensor blk.0.attn_q.weight: dimension 0 is 0");
    with_dims("dimension -1", {32, kMax},
              "tensor blk.0.attn_q.weight: dimension 1 is 18446744073709551615");
    with_dims("dimension 2^63", {32, 1, 1ull << 63},
              "tensor blk.0.attn_q.weight: dimension 2 is 9223372036854775808");
    with_dims("product 2^64", {1ull << 32, 1ull << 32},
              "shape [4294967296, 4294967296] has more elements");
    with_dims("product wraps to 32", {32, (1ull << 59) + 1, 32},
              "shape [32, 576460752303423489, 32] has more elements");
    with_dims("no whole block", {33, 32},
              "tensor blk.0.attn_q.weight: rows of 33 elements are no whole number of Q4_0");
    changed("bytes near 2^65", "shape [4611686018427387904] of type F64 has more bytes",
            [](GgufBuilder& b) {
              b.tensor("output_norm.weight").type = 28;
              b.tensor("output_norm.weight").ne = {1ull << 62};
            });
    with_dims("exabytes", {1ull << 31, 1ull << 31},
              "tensor blk.0.attn_q.weight: 2594073385365405696 bytes at offset");
    changed("two tensors near 2^63 bytes", "tensor x: 9223372036854775807 bytes at offset 0 leave",
            [](GgufBuilder& b) {
              for (const char* name : {"x", "y"}) {
                b.tensors.insert(b.tensors.begin(), {name, {INT64_MAX}, 24, "", uint64_t{0}, {}});
              }
              std::swap(b.tensors[0], b.tensors[1]);
            });
  }

  void placement() {
    const std::string q = "blk.0.attn_q.weight";
    with_offset("offset 1", q, 1,
                "tensor blk.0.attn_q.weight: offset 1 is no multiple of the alignment 32");
    with_offset("offset -1", q, kMax, "offset 18446744073709551615 is no multiple");
    with_offset("offset -32", q, kMax - 31,
                "576 bytes at offset 18446744073709551584 leave the file");
    with_offset("offset 2^63", q, 1ull << 63,
                "576 bytes at offset 9223372036854775808 leave the file");
    with_offset("offset past the end", q, 1 << 20, "576 bytes at offset 1048576 leave the file");
    with_offset("same data twice", "blk.0.ffn_norm.weight", 0, "its data overlaps tensor");
    with_offset("overlap by 32 bytes", "blk.0.attn_norm.weight", 5248,
                "tensor blk.0.attn_norm.weight: its data overlaps");
    std::string cut = tiny_llama().build();
    cut.resize(cut.size() - 33);
    add("last tensor cut", cut, "tensor output_norm.weight: 128 bytes at offset");
  }

  void sizes() {
    with_u32("llama.block_count", 0, "llama.block_count: 0 is outside 1 to 1024");
    with_u32("llama.block_count", UINT32_MAX, "llama.block_count: 4294967295 is outside");
    with_u32("llama.embedding_length", 0, "llama.embedding_length: 0 is outside");
    with_u32("llama.embedding_length", 1u << 31, "llama.embedding_length: 2147483648 is outside");
    with_u32("llama.embedding_length", 64,
             "tensor token_embd.weight: shape [264, 32] does not go with");
    with_u32("llama.feed_forward_length", 0, "llama.feed_forward_length: 0 is outside");
    with_u32("llama.context_length", 0, "llama.context_length: 0 is outside");
    with_u32("llama.vocab_size", 263, "llama.vocab_size: 263, but token_embd.weight has 264 rows");
    changed("block_count -1", "llama.block_count: -1 is outside", [](GgufBuilder& b) {
      b.replace("llama.block_count", GgufValueType::kInt64, raw<int64_t>(-1));
    });
    changed(
        "block_count 2^64-1", "llama.block_count: 18446744073709551615 is beyond 63 bits",
        [](GgufBuilder& b) { b.replace("llama.block_count", GgufValueType::kUint64, raw(kMax)); });
    changed("block_count a string", "llama.block_count: is string", [](GgufBuilder& b) {
      b.replace("llama.block_count", GgufValueType::kString, raw_string("1"));
    });
    changed("block_count missing", "llama.block_count: missing",
            [](GgufBuilder& b) { b.remove("llama.block_count"); });
  }

  void head_sizes() {
    with_u32("llama.attention.head_count", 0, "llama.attention.head_count: 0 is outside");
    with_u32("llama.attention.head_count", 3,
             "llama.attention.head_count: 3 heads do not divide the hidden size 32");
    with_u32("llama.attention.head_count", 32, "llama.attention.key_length: head size 1 is odd");
    with_u32("llama.attention.head_count_kv", 0, "llama.attention.head_count_kv: 0 is outside");
    with_u32("llama.attention.head_count_kv", 3,
             "llama.attention.head_count_kv: 3 key/value heads do not divide 2");
    with_u32("llama.rope.dimension_count", 15, "llama.rope.dimension_count: 15 rotated dimensions");
    with_u32("llama.rope.dimension_count", 18, "llama.rope.dimension_count: 18 rotated dimensions");
    with_key("value length", {"llama.attention.value_length", kUint32, raw(8u)},
             "llama.attention.value_length: 8 differs");
  }

  void constants() {
    with_f32("llama.attention.layer_norm_rms_epsilon", NAN,
             "layer_norm_rms_epsilon: nan is not between");
    with_f32("llama.attention.layer_norm_rms_epsilon", -1e-5f, "layer_norm_rms_epsilon: -9.99");
    with_f32("llama.rope.freq_base", INFINITY, "llama.rope.freq_base: inf is not between");
    with_f32("llama.rope.freq_base", 0, "llama.rope.freq_base: 0 is not between");
    with_key("experts", {"llama.expert_count", kUint32, raw(8u)},
             "llama.expert_used_count: 0 is outside 1 to the 8 experts");
    with_key("too many experts", {"llama.expert_count", kUint32, raw(5000u)},
             "llama.expert_count: 5000 is outside");
    with_key("rope scaling", {"llama.rope.scaling.type", kString, raw_string("spiral")},
             "llama.rope.scaling.type: \"spiral\" is not supported");
    with_key("linear rope scale", {"llama.rope.scale_linear", 6, raw(0.25f)},
             "llama.rope.scaling: factor 0.25 is not between");
    with_key("rope factor NaN", {"llama.rope.scaling.factor", 6, raw(NAN)},
             "llama.rope.scaling: factor nan is not between");
    with_key("two texts ahead", {"llama.attention.causal", 7, raw<uint8_t>(0)},
             "llama.attention.causal: attention to later tokens");
    with_key("window", {"llama.attention.sliding_window", kUint32, raw(UINT32_MAX)},
             "llama.attention.sliding_window: 4294967295 is outside");
    with_key("window pattern", {"llama.attention.sliding_window_pattern", kUint32, raw(4096u)},
             "llama.attention.sliding_window_pattern: 4096 is outside");
    with_key("original context",
             {"llama.rope.scaling.original_context_length", kUint32, raw(UINT32_MAX)},
             "llama.rope.scaling.original_context_length: 4294967295 is outside");
  }

  void vocabulary() {
    changed("more tokens than rows",
            "tokenizer.ggml.tokens: 265 tokens, but token_embd.weight has 264 rows",
            [](GgufBuilder& b) {
              std::vector<std::string> tokens(265, "t");
              b.remove("tokenizer.ggml.tokens").add_strings("tokenizer.ggml.tokens", tokens);
            });
    changed("tokens a number", "tokenizer.ggml.tokens: is uint32, expected an array",
            [](GgufBuilder& b) {
              b.replace("tokenizer.ggml.tokens", GgufValueType::kUint32, raw(5u));
            });
    with_u32("tokenizer.ggml.eos_token_id", 264,
             "tokenizer.ggml.eos_token_id: 264 is no id of a vocabulary of 264");
    with_u32("tokenizer.ggml.eos_token_id", UINT32_MAX,
             "tokenizer.ggml.eos_token_id: 4294967295 is no id");
  }

  std::vector<HostileFile> files_;
};

TEST(GgufHostile, TheFileBehindTheLiesIsValid) {
  const std::string bytes = tiny_llama().build();
  const Status status = read_all(GuardedBytes(bytes).bytes());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(GgufHostile, EveryFileIsRefusedByName) {
  const auto files = HostileFiles().all();
  EXPECT_GE(files.size(), 60u);
  std::map<std::string, std::string> seen;  // message -> file
  for (const HostileFile& file : files) {
    const GuardedBytes guarded(file.bytes);
    const Status status = read_all(guarded.bytes());
    ASSERT_FALSE(status.ok()) << file.name;
    const std::string& message = status.message();
    EXPECT_NE(message.find(file.expected), std::string::npos)
        << file.name << "\n  got      " << message << "\n  expected " << file.expected;
    EXPECT_TRUE(message.starts_with("h.gguf: ")) << message;
    EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos) << message;
    EXPECT_LT(message.size(), 1000u) << message;
    EXPECT_FALSE(status.field().empty()) << message;
    const auto [at, is_new] = seen.emplace(message, file.name);
    EXPECT_TRUE(is_new) << file.name << " and " << at->second << " share: " << message;
  }
}

TEST(GgufHostile, EveryPrefixOfAFileIsRefused) {
  const std::string bytes = tiny_llama().build();
  const auto whole =
      GgufFile::from_memory(std::as_bytes(std::span(bytes.data(), bytes.size())), "whole");
  ASSERT_TRUE(whole.ok());
  const auto last = (*whole)->find_tensor("output_norm.weight")->bytes;
  // The padding behind the last tensor is not needed.
  const auto needed =
      static_cast<size_t>(reinterpret_cast<const char*>(last.data() + last.size()) - bytes.data());
  for (size_t size = 0; size < needed; ++size) {
    const GuardedBytes prefix(std::string_view(bytes).substr(0, size));
    const Status status = read_all(prefix.bytes());
    ASSERT_FALSE(status.ok()) << size;
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << size << ": " << status.message();
  }
}

// Bytes of address space that this process uses.
size_t address_space() {
  size_t pages = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  CHECK(file != nullptr && std::fscanf(file, "%zu", &pages) == 1);
  std::fclose(file);
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// Runs `body` in a child that may map `slack` more bytes than it has; false if it failed or died.
bool runs_within(size_t slack, const std::function<bool()>& body) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    const rlim_t limit = address_space() + slack;
    const struct rlimit limits = {limit, limit};
    try {
      ::_exit(::setrlimit(RLIMIT_AS, &limits) == 0 && body() ? 0 : 1);
    } catch (const std::bad_alloc&) {
      ::_exit(2);
    }
  }
  int state = 0;
  CHECK(::waitpid(child, &state, 0) == child);
  return WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

TEST(GgufHostile, NoFileMakesTheReaderAllocateMoreThanItsSizeJustifies) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need address space of their own";
  constexpr size_t kSlack = 2 << 20;
  for (const HostileFile& file : HostileFiles().all()) {
    const GuardedBytes guarded(file.bytes);
    EXPECT_TRUE(runs_within(kSlack + file.bytes.size(), [&] {
      return !read_all(guarded.bytes()).ok();
    })) << file.name;
  }
  // The limit does bite: so much comes from the system, whatever earlier tests gave back to malloc.
  EXPECT_FALSE(runs_within(kSlack, [] {
    std::vector<char> block(64 << 20);
    return block[5] == 0;
  }));
}

}  // namespace
}  // namespace headrace::gguf_hostile_test
