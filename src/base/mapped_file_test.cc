#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace headrace::mapped_file_test {
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
  EXPECT_EQ(MappedFile::open("/tmp").status().message(), "/tmp: is a folder");
  const std::string pipe = testing::TempDir() + "/mapped_file_test.pipe";
  ::mkfifo(pipe.c_str(), 0600);  // whose opening waits for a writer
  EXPECT_EQ(MappedFile::open(pipe).status().message(), pipe + ": not a regular file");
  ::unlink(pipe.c_str());
}

}  // namespace
}  // namespace headrace::mapped_file_test
