#include "server/upload_store.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/mapped_file.h"
#include "server/durable_file.h"
#include "server/header_text.h"
#include "server/random_id.h"
#include "server/server_state.h"

namespace headrace {
namespace {

std::string_view bytes_of_part(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

class Md5 {
 public:
  Md5() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_md5(), nullptr);
  }
  void add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    std::string text;
    for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

Status bad_parts(std::string message) { return invalid_argument(std::move(message), "part_ids"); }

}  // namespace

Result<std::unique_ptr<UploadStore>> UploadStore::open(const std::string& folder,
                                                       FileStore& files) {
  HR_RETURN_IF_ERROR(make_folder(folder));
  HR_ASSIGN_OR_RETURN(const auto paths, files_in(folder));
  for (const auto& path : paths) ::unlink(path.c_str());
  return std::unique_ptr<UploadStore>(new UploadStore(folder, files));
}

Result<Upload> UploadStore::create(Upload upload) {
  const std::string& owner = upload.file.owner;
  const auto open = std::count_if(entries_.begin(), entries_.end(), [&](const auto& each) {
    return each.second.upload.file.owner == owner;
  });
  if (static_cast<size_t>(open) >= kOpenMax) {
    return exhausted(
        fmt::format("{} uploads are under way, which is the most: complete or cancel some", open));
  }
  HR_RETURN_IF_ERROR(files_.reserve(owner, upload.file.bytes));
  upload.id = "upload_" + random_hex_id();
  upload.file.created_unix_s = unix_seconds();
  upload.expires_unix_s = upload.file.created_unix_s + kOpenSeconds;
  entries_[upload.id].upload = upload;
  return upload;
}

Result<UploadStore::Entry*> UploadStore::entry_of(const std::string& owner, const std::string& id) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.upload.file.owner != owner) {
    return not_found("there is no upload of that id under way", "upload_id");
  }
  return &found->second;
}

Result<UploadPart> UploadStore::add_part(const std::string& owner, const std::string& id,
                                         std::string_view content) {
  HR_ASSIGN_OR_RETURN(Entry * entry, entry_of(owner, id));
  const auto bytes = static_cast<int64_t>(content.size());
  const int64_t left = entry->upload.file.bytes - entry->bytes;
  if (bytes == 0 || bytes > left) {
    return invalid_argument(fmt::format("data has {} bytes, and of the upload {} of {} are left",
                                        bytes, left, entry->upload.file.bytes),
                            "data");
  }
  if (entry->parts.size() >= kPartsMax) {
    return invalid_argument(fmt::format("an upload has at most {} parts", kPartsMax), "data");
  }
  UploadPart part{
      .id = "part_" + random_hex_id(), .upload_id = id, .created_unix_s = unix_seconds()};
  HR_RETURN_IF_ERROR(write_durably(path_of(part.id), content));
  entry->parts[part.id] = bytes;
  entry->bytes += bytes;
  return part;
}

Status UploadStore::join(const Entry& entry, const std::vector<std::string>& part_ids,
                         std::string_view md5, const std::string& path) const {
  HR_ASSIGN_OR_RETURN(DurableFile whole, DurableFile::create(path));
  std::set<std::string> used;
  Md5 sum;
  for (const std::string& id : part_ids) {
    if (entry.parts.count(id) == 0)
      return bad_parts("part_ids holds an id of no part of this upload");
    if (!used.insert(id).second) return bad_parts("part_ids holds an id twice");
    HR_ASSIGN_OR_RETURN(const auto part, MappedFile::open(path_of(id)));
    HR_RETURN_IF_ERROR(whole.append(bytes_of_part(*part)));
    if (!md5.empty()) sum.add(bytes_of_part(*part));
  }
  const int64_t announced = entry.upload.file.bytes;
  if (static_cast<int64_t>(whole.size()) != announced) {
    return bad_parts(fmt::format("the parts have {} bytes together, but the upload was to have {}",
                                 whole.size(), announced));
  }
  if (!md5.empty() && sum.hex() != to_lower(md5)) {
    return invalid_argument("md5 is not that of the parts in this order", "md5");
  }
  return whole.commit();
}

Result<StoredFile> UploadStore::complete(const std::string& owner, const std::string& id,
                                         const std::vector<std::string>& part_ids,
                                         std::string_view md5) {
  HR_ASSIGN_OR_RETURN(Entry * entry, entry_of(owner, id));
  const std::string path = path_of(id);
  HR_RETURN_IF_ERROR(join(*entry, part_ids, md5, path));
  StoredFile file = entry->upload.file;
  file.id = "file-" + random_hex_id();
  file.created_unix_s = unix_seconds();
  const int64_t seconds = entry->upload.file_seconds;
  if (seconds > 0) file.expires_unix_s = file.created_unix_s + seconds;
  HR_ASSIGN_OR_RETURN(StoredFile stored, files_.adopt(std::move(file), path));
  remove(id);
  return stored;
}

Result<Upload> UploadStore::cancel(const std::string& owner, const std::string& id) {
  HR_ASSIGN_OR_RETURN(Upload upload, find(owner, id));
  remove(id);
  return upload;
}

Result<Upload> UploadStore::find(const std::string& owner, const std::string& id) {
  HR_ASSIGN_OR_RETURN(const Entry* entry, entry_of(owner, id));
  return entry->upload;
}

void UploadStore::remove(const std::string& id) {
  const auto found = entries_.find(id);
  for (const auto& [part, _] : found->second.parts) ::unlink(path_of(part).c_str());
  files_.release(found->second.upload.file.owner, found->second.upload.file.bytes);
  entries_.erase(found);
}

void UploadStore::remove_expired(int64_t now_unix_s) {
  std::vector<std::string> expired;
  for (const auto& [id, entry] : entries_) {
    if (entry.upload.expires_unix_s <= now_unix_s) expired.push_back(id);
  }
  for (const std::string& id : expired) remove(id);
}

}  // namespace headrace
