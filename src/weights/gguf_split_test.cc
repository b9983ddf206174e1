// Models in several files: name-00001-of-00003.gguf.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "weights/gguf.h"
#include "weights/gguf_fixture.h"
#include "weights/model_config.h"

namespace headrace::gguf_split_test {
namespace {

namespace fs = std::filesystem;

// tiny_llama() in three parts, the first with all keys and some tensors.
class GgufSplit : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("split-") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    const GgufBuilder whole = tiny_llama();
    tensor_count_ = static_cast<int32_t>(whole.tensors.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (i == 0) parts_[i].entries = whole.entries;
      add_split_keys(parts_[i], static_cast<uint16_t>(i));
    }
    for (size_t i = 0; i < whole.tensors.size(); ++i) {
      parts_[i * parts_.size() / whole.tensors.size()].tensors.push_back(whole.tensors[i]);
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  void add_split_keys(GgufBuilder& part, uint16_t index) const {
    part.add("split.no", GgufValueType::kUint16, raw(index))
        .add("split.count", GgufValueType::kUint16, raw(static_cast<uint16_t>(parts_.size())))
        .add("split.tensors.count", GgufValueType::kInt32, raw(tensor_count_));
  }
  static std::string name(int number) {
    return "m-0000" + std::to_string(number) + "-of-00003.gguf";
  }
  std::string path(int number) const { return (folder_ / name(number)).string(); }
  void write() const {
    for (size_t i = 0; i < parts_.size(); ++i) {
      std::ofstream(path(static_cast<int>(i) + 1), std::ios::binary) << parts_[i].build();
    }
  }
  // The error of opening the first part, without the folder.
  std::string error(int number = 1) const {
    const Status status = GgufFile::open(path(number)).status();
    const std::string prefix = folder_.string() + "/";
    EXPECT_TRUE(status.message().starts_with(prefix)) << status.message();
    return status.ok() ? "" : status.message().substr(prefix.size());
  }

  fs::path folder_;
  int32_t tensor_count_ = 0;
  std::array<GgufBuilder, 3> parts_;
};

TEST_F(GgufSplit, AnyPartOpensTheWholeModel) {
  write();
  const std::string single = tiny_llama().build();
  const auto whole =
      *GgufFile::from_memory(std::as_bytes(std::span(single.data(), single.size())), "w.gguf");
  for (int number = 1; number <= 3; ++number) {
    const auto file = GgufFile::open(path(number));
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ((*file)->name(), path(1));
    EXPECT_EQ((*file)->part_count(), 3u);
    EXPECT_EQ((*file)->file_bytes(),
              fs::file_size(path(1)) + fs::file_size(path(2)) + fs::file_size(path(3)));
    EXPECT_EQ((*file)->plan().tensors.size(), whole->plan().tensors.size());
    for (const GgufTensor& tensor : whole->plan().tensors) {
      const GgufTensor* found = (*file)->find_tensor(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->shape, tensor.shape);
      ASSERT_TRUE(std::equal(found->bytes.begin(), found->bytes.end(), tensor.bytes.begin(),
                             tensor.bytes.end()));
      (*file)->release(found->bytes);
      EXPECT_EQ(found->bytes[0], tensor.bytes[0]);
    }
    const auto config = model_config_from_gguf(**file);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->vocab, 264);
  }
}

TEST_F(GgufSplit, PartsMustLieTogether) {
  write();
  fs::remove(path(2));
  EXPECT_EQ(error(), name(2) + ": missing: part 2 of 3 must lie beside the others");
  write();
  fs::copy(path(1), folder_ / "renamed.gguf");
  EXPECT_EQ(GgufFile::open((folder_ / "renamed.gguf").string()).status().message(),
            (folder_ / "renamed.gguf").string() +
                ": is part 1 of 3: its name must end in -00001-of-00003.gguf for the other parts "
                "to be found");
  fs::copy(path(2), path(3), fs::copy_options::overwrite_existing);
  EXPECT_EQ(error(), name(3) + ": split.no: is part 2 of 3, its name says 3 of 3");
  EXPECT_EQ(error(3), name(3) +
                          ": is part 2 of 3: its name must end in -00002-of-00003.gguf for "
                          "the other parts to be found");
}

TEST_F(GgufSplit, PartsMustAgree) {
  parts_[1].replace("split.tensors.count", GgufValueType::kInt32, raw(12));
  write();
  EXPECT_EQ(error(), name(2) + ": split.tensors.count: 12, another part says 11");
  parts_[1].replace("split.tensors.count", GgufValueType::kInt32, raw(11));
  parts_[1].tensors.pop_back();
  write();
  EXPECT_EQ(error(), name(1) + ": split.tensors.count: 11, the parts have 10 tensors");
  parts_[1].tensors.push_back(parts_[0].tensors.front());
  write();
  EXPECT_EQ(error(), name(1) + ": tensor token_embd.weight: is in two parts of the file");
  parts_[2] = GgufBuilder();
  write();
  EXPECT_EQ(error(), name(3) + ": split.no: is part 1 of 1, its name says 3 of 3");
}

TEST_F(GgufSplit, NumbersOfASplit) {
  const auto first_with = [&](const char* key, GgufValueType type, const std::string& value) {
    const GgufBuilder before = parts_[0];
    parts_[0].replace(key, type, value);
    write();
    parts_[0] = before;
    return error();
  };
  EXPECT_EQ(first_with("split.count", GgufValueType::kInt32, raw(0)),
            name(1) + ": split.count: 0 is outside 1 to 65535");
  EXPECT_EQ(first_with("split.count", GgufValueType::kInt32, raw(65536)),
            name(1) + ": split.count: 65536 is outside 1 to 65535");
  EXPECT_EQ(first_with("split.no", GgufValueType::kInt32, raw(3)),
            name(1) + ": split.no: 3 is no part of 3");
  EXPECT_EQ(first_with("split.no", GgufValueType::kInt32, raw(-1)),
            name(1) + ": split.no: -1 is no part of 3");
  EXPECT_EQ(first_with("split.tensors.count", GgufValueType::kInt32, raw(-1)),
            name(1) + ": split.tensors.count: -1 is outside 0 to 65536");
  parts_[0].remove("split.no");
  write();
  EXPECT_EQ(error(), name(1) + ": split.no: missing");
}

}  // namespace
}  // namespace headrace::gguf_split_test
