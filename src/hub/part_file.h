// A file on its way: its bytes lie in FILE.part, and FILE.part.ranges says which of them are there.
// Under the final name there is a whole file whose hash is right, or none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "hub/byte_ranges.h"

namespace headrace {

class PartFile {
 public:
  // Opens or makes the part of `file`, and its folders, for this process alone: while another has
  // it, this waits until `stopped` says so. `identity`, a word, tells versions of the file apart;
  // empty: nothing does, and no run goes on from another's part.
  static Result<std::unique_ptr<PartFile>> open(const std::filesystem::path& file,
                                                const std::string& identity,
                                                const std::function<bool()>& stopped);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // What an earlier run left of a file of `size` bytes; of another version nothing.
  ByteRanges read_ranges(int64_t size) const;
  Status save_ranges(const ByteRanges& ranges) const;
  // Any thread. kExhausted: the disk is full.
  Status write(int64_t offset, std::string_view bytes) const;
  // At most `bytes_max`, from `offset` on.
  Result<std::string> read(int64_t offset, size_t bytes_max) const;
  // Gives it its final name, when its bytes, `size` of them, are on the disk.
  Status finish(int64_t size);
  // Takes it away.
  void discard();

 private:
  PartFile(std::filesystem::path file, std::string identity, int descriptor);
  std::filesystem::path part() const { return file_.string() + ".part"; }
  std::filesystem::path ranges_file() const { return file_.string() + ".part.ranges"; }

  const std::filesystem::path file_;
  const std::string identity_;
  const int descriptor_;
};

// What read_ranges() gives, without opening the part.
ByteRanges ranges_on_disk(const std::filesystem::path& file, const std::string& identity,
                          int64_t size);

// Whether a PartFile of any process has `part` ("FILE.part") open.
bool is_in_use(const std::filesystem::path& part);

}  // namespace headrace
