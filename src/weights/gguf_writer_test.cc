#include "weights/gguf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "weights/gguf_fixture.h"

namespace headrace::gguf_writer_test {
namespace {

TEST(GgufWriter, WritesKeysOfAnotherFileAndTensorsOfOtherTypes) {
  const std::string from = tiny_llama().add_u32("general.file_type", 1).build();
  const auto source = GgufFile::from_memory(std::as_bytes(std::span(from)), "from").value();
  std::vector<GgufOutTensor> tensors;
  for (const GgufTensor& tensor : source->plan().tensors) {
    tensors.push_back({std::string(tensor.name),
                       tensor.shape.rank() == 2 ? find_gguf_type(8) : tensor.type, tensor.shape});
  }
  const std::string path = testing::TempDir() + "written.gguf";
  const std::pair<std::string_view, uint32_t> numbers[] = {{"general.file_type", 7}};
  {
    const auto writer = GgufWriter::create(path, *source, numbers, tensors);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::ranges::fill((*writer)->data(i), static_cast<std::byte>(i + 1));
    }
  }
  const auto back = GgufFile::open(path);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ((*back)->require_int("general.file_type").value(), 7);
  EXPECT_EQ((*back)->plan().entries.size(), source->plan().entries.size());
  for (const GgufEntry& entry : source->plan().entries) {
    const GgufEntry* const other = (*back)->find(entry.key);
    ASSERT_NE(other, nullptr) << entry.key;
    if (entry.key == "general.file_type") continue;
    EXPECT_TRUE(std::ranges::equal(entry.bytes, other->bytes)) << entry.key;
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const GgufTensor* const tensor = (*back)->find_tensor(tensors[i].name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shape, tensors[i].shape);
    EXPECT_EQ(tensor->type, tensors[i].type);
    EXPECT_TRUE(std::ranges::all_of(
        tensor->bytes, [&](std::byte byte) { return byte == static_cast<std::byte>(i + 1); }));
  }
  // What a run before has written is kept, unless its head differs.
  const auto again = GgufWriter::create(path, *source, numbers, tensors, OldFile::kContinue);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE((*again)->file().continued());
  EXPECT_EQ((*again)->data(0)[0], std::byte{1});
  const std::pair<std::string_view, uint32_t> others[] = {{"general.file_type", 2}};
  const auto other = GgufWriter::create(path, *source, others, tensors, OldFile::kContinue);
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE((*other)->file().continued());
  EXPECT_EQ((*other)->data(0)[0], std::byte{0});
}

TEST(GgufWriter, RefusesRowsThatAreNoWholeBlocks) {
  const std::string from = tiny_llama().build();
  const auto source = GgufFile::from_memory(std::as_bytes(std::span(from)), "from").value();
  const GgufOutTensor tensors[] = {{"odd", find_gguf_type(12), Shape{2, 96}}};
  const auto writer = GgufWriter::create(testing::TempDir() + "odd.gguf", *source, {}, tensors);
  ASSERT_FALSE(writer.ok());
  EXPECT_NE(writer.status().message().find("odd"), std::string::npos);
}

}  // namespace
}  // namespace headrace::gguf_writer_test
