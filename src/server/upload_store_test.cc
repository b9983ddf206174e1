#include "server/upload_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace headrace::upload_store_test {
namespace {

namespace fs = std::filesystem;

class UploadStoreTest : public testing::Test {
 protected:
  UploadStoreTest() {
    fs::remove_all(folder_);
    files_ = std::move(*FileStore::open(folder_ / "files", {.bytes_max = 100, .files_max = 3}));
    uploads_ = std::move(*UploadStore::open(folder_ / "uploads", *files_));
  }
  ~UploadStoreTest() override { fs::remove_all(folder_); }

  Result<Upload> create(int64_t bytes, const std::string& owner = "me") {
    Upload upload;
    upload.file = {.owner = owner, .filename = "a.jsonl", .purpose = "batch", .bytes = bytes};
    return uploads_->create(std::move(upload));
  }
  std::string add(const Upload& upload, std::string_view content) {
    const auto part = uploads_->add_part("me", upload.id, content);
    return part.ok() ? part->id : std::string(part.status().message());
  }
  std::string complete(const Upload& upload, const std::vector<std::string>& parts,
                       std::string_view md5 = "") {
    const auto file = uploads_->complete("me", upload.id, parts, md5);
    return file.ok() ? file->id : std::string(file.status().message());
  }
  size_t parts_on_disk() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_ / "uploads"), fs::directory_iterator()));
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "upload_store_test";
  std::unique_ptr<FileStore> files_;
  std::unique_ptr<UploadStore> uploads_;
};

TEST_F(UploadStoreTest, PartsBecomeAFileInTheOrderThatIsAskedFor) {
  const Upload upload = *create(7);
  const std::string second = add(upload, "world"), first = add(upload, "hi");
  EXPECT_EQ(complete(upload, {first, second}, "00000000000000000000000000000000"),
            "md5 is not that of the parts in this order");
  const std::string id = complete(upload, {first, second}, "1a7667B0AFDEF7323D68E291E0315AC1");
  const auto file = files_->find("me", id);
  ASSERT_TRUE(file) << id;
  EXPECT_EQ(file->bytes, 7);
  EXPECT_EQ(file->filename, "a.jsonl");
  std::string content(7, '\0');
  std::ifstream(files_->content_path(id)).read(content.data(), 7);
  EXPECT_EQ(content, "hiworld");
  EXPECT_EQ(parts_on_disk(), 0u);
  EXPECT_EQ(files_->bytes_total(), 7);
  EXPECT_FALSE(uploads_->find("me", upload.id).ok());
}

TEST_F(UploadStoreTest, WhatDoesNotFitIsRefusedAndTheUploadStays) {
  const Upload upload = *create(4);
  EXPECT_NE(add(upload, "12345").find("data has 5 bytes, and of the upload 4 of 4 are left"),
            std::string::npos);
  EXPECT_NE(add(upload, "").find("data has 0 bytes"), std::string::npos);
  const std::string part = add(upload, "12");
  EXPECT_NE(complete(upload, {part}).find("have 2 bytes together, but the upload was to have 4"),
            std::string::npos);
  EXPECT_NE(complete(upload, {part, part}).find("twice"), std::string::npos);
  EXPECT_NE(complete(upload, {part, "part_0"}).find("no part of this upload"), std::string::npos);
  EXPECT_EQ(uploads_->add_part("you", upload.id, "34").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(uploads_->cancel("you", upload.id).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(files_->find("me", complete(upload, {part, add(upload, "34")})));
}

TEST_F(UploadStoreTest, UploadsCountAmongTheFilesOfTheirOwner) {
  const Upload upload = *create(60);
  EXPECT_EQ(create(41).status().field(), "file");
  EXPECT_TRUE(create(41, "you").ok());
  ASSERT_TRUE(uploads_->cancel("me", upload.id).ok());
  EXPECT_EQ(uploads_->cancel("me", upload.id).status().code(), StatusCode::kNotFound);
  const Upload next = *create(41);
  static_cast<void>(add(next, "1"));
  EXPECT_EQ(parts_on_disk(), 1u);
  uploads_->remove_expired(next.expires_unix_s - 1);
  EXPECT_TRUE(uploads_->find("me", next.id).ok());
  uploads_->remove_expired(next.expires_unix_s);
  EXPECT_FALSE(uploads_->find("me", next.id).ok());
  EXPECT_EQ(parts_on_disk(), 0u);
  EXPECT_EQ(files_->bytes_total(), 0);
}

TEST_F(UploadStoreTest, TooManyAtATimeMayComeLater) {
  files_ = std::move(*FileStore::open(folder_ / "more", {.bytes_max = 100, .files_max = 99}));
  uploads_ = std::move(*UploadStore::open(folder_ / "uploads", *files_));
  for (size_t i = 0; i < UploadStore::kOpenMax; ++i) ASSERT_TRUE(create(1).ok());
  EXPECT_EQ(create(1).status().code(), StatusCode::kExhausted);
  EXPECT_TRUE(create(1, "you").ok());
}

TEST_F(UploadStoreTest, ARestartForgetsThem) {
  static_cast<void>(add(*create(5), "123"));
  uploads_ = std::move(*UploadStore::open(folder_ / "uploads", *files_));
  EXPECT_EQ(parts_on_disk(), 0u);
}

}  // namespace
}  // namespace headrace::upload_store_test
