#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <fstream>

namespace headrace {
namespace {

TEST(MappedFile, MapsBytesAndSurvivesRelease) {
  const std::string path = testing::TempDir() + "/mapped_file_test.bin";
  std::ofstream(path, std::ios::binary) << std::string(10'000, 'a') << std::string(10'000, 'b');
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto bytes = (*file)->bytes();
  ASSERT_EQ(bytes.size(), 20'000u);
  (*file)->release(bytes);
  EXPECT_EQ(static_cast<char>(bytes[9'999]), 'a');
  EXPECT_EQ(static_cast<char>(bytes[10'000]), 'b');
}

TEST(MappedFile, ErrorsNameThePath) {
  const Status status = MappedFile::open("/nowhere/model.gguf").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nowhere/model.gguf"), std::string::npos);
  EXPECT_FALSE(MappedFile::open("/tmp").ok());
}

}  // namespace
}  // namespace headrace
