// What is known of models before they are loaded.
#include "apps/served_models.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace headrace::served_models_test {
namespace {

namespace fs = std::filesystem;

class ServedModelsTest : public testing::Test {
 protected:
  ~ServedModelsTest() override { fs::remove_all(folder_); }
  void write(const fs::path& path, size_t bytes) const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << std::string(bytes, 'x');
  }
  int64_t file_bytes(const std::string& path) const {
    return model_spec({}, {"m", path}, {}).facts.file_bytes;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "served_models_test";
};

// The bound on memory is held against this before the first load.
TEST_F(ServedModelsTest, SizesOfFilesFoldersPartsAndHubNames) {
  write("one.gguf", 10);
  write("m-00001-of-00002.gguf", 100);
  write("m-00002-of-00002.gguf", 50);
  write("m-x-00001-of-00001.gguf", 7);
  write("folder/a.safetensors", 3);
  write("folder/b.safetensors", 4);
  write("folder/notes.txt", 1000);
  EXPECT_EQ(file_bytes(folder_ / "one.gguf"), 10);
  EXPECT_EQ(file_bytes(folder_ / "m-00001-of-00002.gguf"), 150);
  EXPECT_EQ(file_bytes(folder_ / "m-x-00001-of-00001.gguf"), 7);
  EXPECT_EQ(file_bytes(folder_ / "folder"), 7);
  EXPECT_EQ(file_bytes(folder_ / "nothing.gguf"), 0);
  write("hub/models--maker--tiny/snapshots/main/model.safetensors", 23);
  setenv("HF_HUB_CACHE", (folder_ / "hub").c_str(), 1);
  EXPECT_EQ(file_bytes("maker/tiny"), 23);
  EXPECT_EQ(file_bytes("maker/other"), 0);
  unsetenv("HF_HUB_CACHE");
}

}  // namespace
}  // namespace headrace::served_models_test
