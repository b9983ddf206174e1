#include "weights/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "weights/safetensors_fixture.h"

namespace headrace::safetensors_test {
namespace {

std::span<const std::byte> bytes_of(const std::string& file) {
  return std::as_bytes(std::span(file.data(), file.size()));
}

// The error of a file, without its name.
std::string error_of(const std::string& file) {
  const auto plan = parse_safetensors(bytes_of(file), "t.safetensors");
  if (plan.ok()) return "";
  const std::string prefix = "t.safetensors: ";
  EXPECT_TRUE(plan.status().message().starts_with(prefix)) << plan.status().message();
  return plan.status().message().substr(prefix.size());
}

SafetensorsBuilder small() {
  SafetensorsBuilder builder;
  builder.metadata("format", "pt")
      .add_f32("b.weight", {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6})
      .add("a.weight", "BF16", {4}, std::string(8, '\x01'))
      .add("scalar", "I64", {}, std::string(8, '\0'))
      .add("empty", "F16", {0, 7}, "");
  return builder;
}

TEST(Safetensors, ReadsWhatAFileDeclares) {
  const std::string data = small().build();
  const auto file = SafetensorsFile::from_memory(bytes_of(data), "t.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const SafetensorsPlan& plan = (*file)->plan();
  EXPECT_EQ(plan.format, "pt");
  ASSERT_EQ(plan.tensors.size(), 4u);
  EXPECT_EQ(plan.tensors[0].name, "a.weight");
  const SafetensorsTensor* b = (*file)->find("b.weight");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (Shape{2, 3}));
  EXPECT_EQ(b->elements, 6);
  EXPECT_EQ(b->type->dtype, DType::kF32);
  ASSERT_EQ(b->bytes.size(), 24u);
  float last = 0;
  std::memcpy(&last, b->bytes.data() + 20, 4);
  EXPECT_EQ(last, 6);
  EXPECT_EQ((*file)->find("scalar")->elements, 1);
  EXPECT_FALSE((*file)->find("scalar")->type->dtype.has_value());
  EXPECT_EQ((*file)->find("empty")->bytes.size(), 0u);
  EXPECT_EQ((*file)->find("c"), nullptr);
}

TEST(Safetensors, KnowsEveryTypeOfTheFormat) {
  std::set<std::string_view> names;
  for (const SafetensorsType& type : safetensors_types()) {
    EXPECT_TRUE(names.insert(type.name).second) << type.name;
    EXPECT_EQ(find_safetensors_type(type.name), &type);
    if (type.dtype) {
      EXPECT_EQ(dtype_name(*type.dtype), type.name);
      EXPECT_EQ(dtype_info(*type.dtype).block_bytes * 8, type.bits);
    }
  }
  EXPECT_EQ(find_safetensors_type("Q4_0"), nullptr);
}

TEST(Safetensors, AFileWithoutTensorsIsValid) {
  EXPECT_EQ(error_of(safetensors_bytes("{}", "")), "");
  EXPECT_EQ(error_of(safetensors_bytes("{}      ", "")), "");
}

// One tensor `t` with the given members over `data`.
std::string one(std::string_view members, std::string_view data) {
  return safetensors_bytes("{\"t\":{" + std::string(members) + "}}", data);
}

TEST(SafetensorsHostile, LengthsOfTheHeader) {
  EXPECT_EQ(error_of(""), "header length: the file has 0 bytes");
  EXPECT_EQ(error_of("1234567"), "header length: the file has 7 bytes");
  std::string file = safetensors_bytes("{}", "");
  const auto with_length = [&](uint64_t length) {
    std::memcpy(file.data(), &length, sizeof(length));
    return error_of(file);
  };
  EXPECT_EQ(with_length(3), "header length: 3 bytes, the file has 2 more");
  EXPECT_EQ(with_length(0), "header: does not start with '{'");
  EXPECT_EQ(with_length(100'000'000), "header length: 100000000 bytes, the file has 2 more");
  EXPECT_EQ(with_length(100'000'001),
            "header length: 100000001 bytes, at most 100000000 are allowed");
  EXPECT_EQ(with_length(UINT64_MAX),
            "header length: 18446744073709551615 bytes, at most 100000000 are allowed");
  EXPECT_EQ(with_length(UINT64_MAX - 7),
            "header length: 18446744073709551608 bytes, at most 100000000 are allowed");
}

TEST(SafetensorsHostile, HeadersThatAreNoHeader) {
  EXPECT_EQ(error_of(safetensors_bytes(" {}", "")), "header: does not start with '{'");
  EXPECT_EQ(error_of(safetensors_bytes("[]", "")), "header: does not start with '{'");
  for (const char* text : {"{", "{}{}", "{\"a\":}", "{\"\xff\":{}}", "{'a':1}", "{\"a\":1,}"}) {
    EXPECT_TRUE(error_of(safetensors_bytes(text, "")).starts_with("header: not valid JSON"))
        << text;
  }
  EXPECT_TRUE(error_of(safetensors_bytes(std::string_view("{}\0", 3), ""))
                  .starts_with("header: not valid JSON"));
  const std::string nested =
      "{\"t\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_EQ(error_of(safetensors_bytes(nested, "")), "header: nested deeper than 3");
  EXPECT_EQ(error_of(safetensors_bytes("{\"t\":[[[1]]]}", "")), "header: nested deeper than 3");
  const std::string member = R"("t":{"dtype":"F32","shape":[],"data_offsets":[0,4]})";
  EXPECT_EQ(error_of(safetensors_bytes("{" + member + "," + member + "}", "1234")),
            "header: key \"t\" appears twice in one object");
  std::string many = "{\"t\":{\"dtype\":\"F32\",\"shape\":[1";
  for (int i = 0; i < 600'000; ++i) many += ",1";
  EXPECT_EQ(error_of(safetensors_bytes(many + "]}}", "")), "header: more than 524288 elements");
  std::string keys = "{\"__metadata__\":{\"\":\"\"";
  for (int i = 0; i < 300'000; ++i) keys += ",\"" + std::to_string(i) + "\":\"\"";
  EXPECT_EQ(error_of(safetensors_bytes(keys + "}}", "")), "header: more than 262144 keys");
  EXPECT_EQ(error_of("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"),
            "is a Git LFS pointer, not the file that it stands for (git lfs pull fetches it)");
}

// The patch embedding of models that also see is a convolution of five dimensions.
TEST(Safetensors, DimensionsBehindTheFourthAreOneWithIt) {
  const std::string header =
      R"({"conv":{"dtype":"F32","shape":[1,1,2,3,2],"data_offsets":[0,48]}})";
  const std::string data = safetensors_bytes(header, std::string(48, '\0'));
  const auto file = SafetensorsFile::from_memory(bytes_of(data), "t.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->find("conv")->shape, (Shape{1, 1, 2, 6}));
  EXPECT_EQ((*file)->find("conv")->elements, 12);
}

TEST(SafetensorsHostile, Metadata) {
  EXPECT_EQ(error_of(safetensors_bytes(R"({"__metadata__":[]})", "")),
            "__metadata__: is no JSON object");
  EXPECT_EQ(error_of(safetensors_bytes(R"({"__metadata__":{"a":1}})", "")),
            "__metadata__: a is integer, expected a string");
}

TEST(SafetensorsHostile, Tensors) {
  const std::string data(8, '\0');
  const std::pair<const char*, const char*> cases[] = {
      {R"("shape":[2],"data_offsets":[0,8])", "dtype is no string"},
      {R"("dtype":7,"shape":[2],"data_offsets":[0,8])", "dtype is no string"},
      {R"("dtype":"Q4_K","shape":[2],"data_offsets":[0,8])", "type Q4_K is not known"},
      {R"("dtype":"F32","data_offsets":[0,8])", "shape is no list"},
      {R"("dtype":"F32","shape":2,"data_offsets":[0,8])", "shape is no list"},
      {R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", "dimension 0 is no count"},
      {R"("dtype":"F32","shape":[1,2.0],"data_offsets":[0,8])", "dimension 1 is no count"},
      {R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])",
       "dimension 0 is no count"},
      {R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])",
       "9 dimensions (8 at most are supported)"},
      {R"("dtype":"F32","shape":[1,1,1,4294967296,4294967296],"data_offsets":[0,8])",
       "shape [1, 1, 1, 9223372036854775807] has more elements than 60 bits count"},
      {R"("dtype":"F32","shape":[1,1,1,4294967296,4294967296,0],"data_offsets":[0,0])",
       "shape [1, 1, 1, 0] has more elements than 60 bits count"},
      {R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])",
       "shape [4294967296, 4294967296] has more elements than 60 bits count"},
      {R"("dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4])",
       "shape [4611686018427387905] has more elements than 60 bits count"},
      {R"("dtype":"F32","shape":[0,4611686018427387904],"data_offsets":[0,0])",
       "shape [0, 4611686018427387904] has more elements than 60 bits count"},
      {R"("dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0])",
       "shape [4294967296, 4294967296, 0] has more elements than 60 bits count"},
      {R"("dtype":"F4","shape":[3],"data_offsets":[0,1])",
       "data_offsets [0, 1] are no whole bytes of F4 [3]"},
      {R"("dtype":"F32","shape":[3],"data_offsets":[0,8])",
       "data_offsets [0, 8] are no 12 bytes of F32 [3]"},
      {R"("dtype":"F32","shape":[2])", "data_offsets is no pair of 63-bit integers"},
      {R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])",
       "data_offsets is no pair of 63-bit integers"},
      {R"("dtype":"F32","shape":[2],"data_offsets":[0.0,8])",
       "data_offsets is no pair of 63-bit integers"},
      {R"("dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615])",
       "data_offsets is no pair of 63-bit integers"},
      {R"("dtype":"F32","shape":[2],"data_offsets":[9223372036854775799,9223372036854775807])",
       "data_offsets [9223372036854775799, 9223372036854775807] leave the 8 bytes of data"},
      {R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])",
       "data_offsets [-8, 0] leave the 8 bytes of data"},
      {R"("dtype":"F32","shape":[2],"data_offsets":[8,0])",
       "data_offsets [8, 0] leave the 8 bytes of data"},
      {R"("dtype":"F32","shape":[3],"data_offsets":[0,12])",
       "data_offsets [0, 12] leave the 8 bytes of data"},
      {R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", "a gap of 4 bytes before its data"},
      {R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)", "member x is not of the format"},
  };
  for (const auto& [members, error] : cases) {
    EXPECT_EQ(error_of(one(members, data)), std::string("tensor t: ") + error) << members;
  }
  EXPECT_EQ(error_of(safetensors_bytes(R"({"t":1})", "")), "tensor t: is no JSON object");
  EXPECT_EQ(error_of(safetensors_bytes(R"({"":{}})", "")), "header: a tensor's name is empty");
  EXPECT_EQ(error_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", data)),
            "data: 4 bytes after the last tensor belong to none");
  const std::string first = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const auto two = [&](const std::string& second) {
    return error_of(safetensors_bytes("{" + first + ",\"b\":" + second + "}", data + data));
  };
  EXPECT_EQ(two(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})"),
            "tensor b: its data overlaps tensor a");
  EXPECT_EQ(two(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"),
            "tensor b: its data overlaps tensor a");
  EXPECT_EQ(two(R"({"dtype":"F32","shape":[0],"data_offsets":[4,4]})"),
            "tensor b: its data overlaps tensor a");
  EXPECT_EQ(two(R"({"dtype":"F32","shape":[2],"data_offsets":[8,16]})"), "");
}

// Verdicts of the reference reader (PyPI safetensors 0.8) on the fuzz target's seeds: whatever is
// accepted here is accepted there.
TEST(SafetensorsHostile, AcceptsOnlyWhatTheReferenceAccepts) {
  const std::set<std::string> accepted_there = {"quantised_gptq", "quantised_gptq_order",
                                                "quantised_awq",  "quantised_packed",
                                                "quantised_int8", "quantised_fp8",
                                                "duplicate",      "empty",
                                                "empty_name",     "extra_member",
                                                "found_01",       "llama",
                                                "metadata",       "rank5",
                                                "spaces",         "scalar_and_empty",
                                                "space_first",    "twins",
                                                "types",          "unaligned"};
  int accepted = 0, refused = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("tests/fuzz/corpus/weights_safetensors_fuzz")) {
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(stream), {}};
    if (file.starts_with('{')) continue;  // an index
    const std::string error = error_of(file);
    ++(error.empty() ? accepted : refused);
    const bool there = accepted_there.contains(entry.path().filename());
    EXPECT_TRUE(there || !error.empty()) << entry.path();
  }
  EXPECT_EQ(accepted, 15);
  EXPECT_GT(refused, 25);
}

TEST(SafetensorsHostile, EveryPrefixOfAFileIsRefused) {
  const std::string file = small().build();
  ASSERT_EQ(error_of(file), "");
  for (size_t length = 0; length < file.size(); ++length) {
    // A copy of its own: a byte read beyond it is one that a sanitizer sees.
    const std::string prefix(file.data(), length);
    ASSERT_NE(error_of(prefix), "") << length;
  }
  EXPECT_EQ(error_of(file + "x"), "data: 1 bytes after the last tensor belong to none");
}

}  // namespace
}  // namespace headrace::safetensors_test
