// The uploads of /v1/uploads: files that come in parts, which lie in a folder until the last has
// come and they are one file of the FileStore. A restart forgets uploads that were under way.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/file_store.h"

namespace headrace {

struct Upload {
  std::string id;            // "upload_..."
  StoredFile file;           // as it will be; `bytes` is what was announced
  int64_t file_seconds = 0;  // from its end until the file expires; 0: never
  int64_t expires_unix_s = 0;
};

struct UploadPart {
  std::string id;  // "part_..."
  std::string upload_id;
  int64_t created_unix_s = 0;
};

// One thread at a time: that of the disk. Another owner's upload is kNotFound, as if there were
// none; a full disk, and an upload more than there may be under way, are kExhausted.
class UploadStore {
 public:
  static constexpr size_t kOpenMax = 16;  // of one owner
  static constexpr size_t kPartsMax = 10'000;
  static constexpr int64_t kOpenSeconds = 3600;

  // Makes the folder and empties it. `files` outlives this.
  static Result<std::unique_ptr<UploadStore>> open(const std::string& folder, FileStore& files);

  // Fills in `id` and the times, and keeps room for the file among its owner's.
  Result<Upload> create(Upload upload);
  Result<UploadPart> add_part(const std::string& owner, const std::string& id,
                              std::string_view content);
  // Makes the file of the parts in that order; then the upload is gone. `md5`: in hexadecimal
  // digits; empty: any. kInvalidArgument, and the upload stays: a part is unknown or named twice,
  // they are not as long as was announced, or the file has another MD5.
  Result<StoredFile> complete(const std::string& owner, const std::string& id,
                              const std::vector<std::string>& part_ids, std::string_view md5);
  Result<Upload> cancel(const std::string& owner, const std::string& id);
  // kNotFound: there is none.
  Result<Upload> find(const std::string& owner, const std::string& id);
  void remove_expired(int64_t now_unix_s);

 private:
  struct Entry {
    Upload upload;
    std::map<std::string, int64_t> parts;  // bytes
    int64_t bytes = 0;                     // of all
  };

  UploadStore(std::string folder, FileStore& files) : folder_(std::move(folder)), files_(files) {}
  Result<Entry*> entry_of(const std::string& owner, const std::string& id);
  Status join(const Entry& entry, const std::vector<std::string>& part_ids, std::string_view md5,
              const std::string& path) const;
  void remove(const std::string& id);
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_;
  FileStore& files_;
  std::map<std::string, Entry> entries_;  // by id
};

}  // namespace headrace
