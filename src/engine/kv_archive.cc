#include "engine/kv_archive.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/private_file.h"

namespace headrace {
namespace {

constexpr char kMagic[9] = "HRKV0003";
constexpr uint32_t kRecordMagic = 0x74696e75;  // "unit"
// Bounds of what a record may claim, so that a damaged one allocates little.
constexpr uint32_t kSaltBytesMax = 1 << 16, kTokensMax = 1 << 16, kPagesMax = 1 << 12;

struct RecordHeader {
  uint32_t magic = kRecordMagic;
  int32_t parent = -1;  // index of an earlier record
  uint32_t salt_bytes = 0, tokens = 0, pages = 0, reserved = 0;
  uint64_t adapter = 0, arithmetic = 0;
};

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
// Of a descriptor that is open; -1 stays an error.
File to_file(int descriptor, const char* mode) {
  return File(descriptor < 0 ? nullptr : ::fdopen(descriptor, mode), &std::fclose);
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// Adds bytes to a file and to a checksum.
class RecordWriter {
 public:
  RecordWriter(std::FILE* file, const std::string& path) : file_(file), path_(path) {}

  Status write(std::span<const std::byte> bytes) {
    sum_ = checksum64(bytes, sum_);
    return put(bytes);
  }
  Status end_record() {
    const uint64_t sum = std::exchange(sum_, 0);
    return put(std::as_bytes(std::span(&sum, 1)));
  }
  int64_t written() const { return written_; }

 private:
  Status put(std::span<const std::byte> bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
      return exhausted(fmt::format("{}: {}", path_, std::strerror(errno)));
    }
    written_ += static_cast<int64_t>(bytes.size());
    return ok_status();
  }
  std::FILE* file_;
  const std::string& path_;
  uint64_t sum_ = 0;
  int64_t written_ = 0;
};

class RecordReader {
 public:
  explicit RecordReader(std::FILE* file) : file_(file) {}

  // False: the file ends before.
  bool read(std::span<std::byte> bytes) {
    if (std::fread(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return false;
    sum_ = checksum64(bytes, sum_);
    return true;
  }
  template <class T>
  bool read_all(std::vector<T>& values, size_t count) {
    values.resize(count);
    return read(std::as_writable_bytes(std::span(values)));
  }
  // Whether the record is what was written.
  bool end_record() {
    const uint64_t expected = std::exchange(sum_, 0);
    uint64_t sum = 0;
    return std::fread(&sum, 1, sizeof(sum), file_) == sizeof(sum) && sum == expected;
  }

 private:
  std::FILE* file_;
  uint64_t sum_ = 0;
};

Status write_file_header(RecordWriter& writer, const std::string& fingerprint, int64_t page_bytes) {
  const std::vector<int64_t> sizes = {static_cast<int64_t>(fingerprint.size()), page_bytes};
  HR_RETURN_IF_ERROR(writer.write(std::as_bytes(std::span(kMagic, 8))));
  HR_RETURN_IF_ERROR(writer.write(bytes_of(sizes)));
  HR_RETURN_IF_ERROR(
      writer.write(std::as_bytes(std::span(fingerprint.data(), fingerprint.size()))));
  return writer.end_record();
}

Status write_unit(RecordWriter& writer, const KeptUnit& unit, Runner& runner,
                  std::vector<std::byte>& page) {
  const RecordHeader header{.parent = unit.parent,
                            .salt_bytes = static_cast<uint32_t>(unit.salt.size()),
                            .tokens = static_cast<uint32_t>(unit.tokens.size()),
                            .pages = static_cast<uint32_t>(unit.pages.size()),
                            .adapter = unit.adapter,
                            .arithmetic = unit.arithmetic};
  HR_RETURN_IF_ERROR(writer.write(std::as_bytes(std::span(&header, 1))));
  HR_RETURN_IF_ERROR(writer.write(std::as_bytes(std::span(unit.salt))));
  HR_RETURN_IF_ERROR(writer.write(bytes_of(unit.tokens)));
  std::vector<int32_t> slots;
  for (const KeptUnit::Page& kept : unit.pages) slots.push_back(kept.slot);
  HR_RETURN_IF_ERROR(writer.write(bytes_of(slots)));
  for (const KeptUnit::Page& kept : unit.pages) {
    HR_RETURN_IF_ERROR(runner.read_page(kept.place, page));
    HR_RETURN_IF_ERROR(writer.write(page));
  }
  return writer.end_record();
}

Status write_archive(std::FILE* file, const std::string& path, const std::string& fingerprint,
                     const PrefixCache& cache, Runner& runner, KvArchiveCounts& counts) {
  RecordWriter writer(file, path);
  std::vector<std::byte> page(static_cast<size_t>(runner.page_bytes()));
  HR_RETURN_IF_ERROR(write_file_header(writer, fingerprint, runner.page_bytes()));
  for (const KeptUnit& unit : cache.kept_units()) {
    HR_RETURN_IF_ERROR(write_unit(writer, unit, runner, page));
    ++counts.units;
  }
  counts.bytes = writer.written();
  if (std::fflush(file) != 0 || ::fsync(::fileno(file)) != 0) {
    return exhausted(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  return ok_status();
}

Status check_file_header(RecordReader& reader, const std::string& path,
                         const std::string& fingerprint, int64_t page_bytes) {
  const auto other = [&](std::string_view what) {
    return invalid_argument(
        fmt::format("{} {}: it is not used, and replaced at shutdown", path, what));
  };
  std::vector<char> magic, name;
  std::vector<int64_t> sizes;
  if (!reader.read_all(magic, 8) || std::memcmp(magic.data(), kMagic, 8) != 0 ||
      !reader.read_all(sizes, 2) || sizes[0] < 0 || sizes[0] > kSaltBytesMax ||
      !reader.read_all(name, static_cast<size_t>(sizes[0])) || !reader.end_record()) {
    return other("holds no saved keys and values");
  }
  if (std::string(name.begin(), name.end()) != fingerprint || sizes[1] != page_bytes) {
    return other("is of another model, or of other settings");
  }
  return ok_status();
}

// A record, of which nothing is believed before its checksum was compared.
struct Record {
  RecordHeader header;
  std::vector<char> salt;
  std::vector<TokenId> tokens;
  std::vector<int32_t> slots;
  std::vector<std::byte> pages;

  enum class State { kWhole, kDamaged, kEnd };
  // kEnd: the file ends, or nothing after this can be read.
  State read(RecordReader& reader, int64_t page_bytes) {
    if (!reader.read(std::as_writable_bytes(std::span(&header, 1)))) return State::kEnd;
    if (header.magic != kRecordMagic || header.salt_bytes > kSaltBytesMax ||
        header.tokens > kTokensMax || header.pages > kPagesMax) {
      return State::kEnd;
    }
    const bool there = reader.read_all(salt, header.salt_bytes) &&
                       reader.read_all(tokens, header.tokens) &&
                       reader.read_all(slots, header.pages);
    if (!there) return State::kEnd;
    const auto size = static_cast<size_t>(page_bytes);
    pages.resize(header.pages * size);
    for (size_t page = 0; page < header.pages; ++page) {
      if (!reader.read(std::span(pages).subspan(page * size, size))) return State::kEnd;
    }
    return reader.end_record() ? State::kWhole : State::kDamaged;
  }
};

}  // namespace

Result<KvArchiveCounts> save_kv(const std::string& path, const std::string& fingerprint,
                                const PrefixCache& cache, Runner& runner) {
  const std::string beside = path + ".part";
  KvArchiveCounts counts;
  Status status;
  {
    const File file = to_file(create_private_file(beside), "wb");
    if (file == nullptr) {
      return exhausted(fmt::format("{} cannot be written: {}", beside, std::strerror(errno)));
    }
    status = write_archive(file.get(), beside, fingerprint, cache, runner, counts);
  }
  if (status.ok() && std::rename(beside.c_str(), path.c_str()) == 0) return counts;
  if (status.ok()) status = exhausted(fmt::format("{}: {}", path, std::strerror(errno)));
  std::remove(beside.c_str());
  return status;
}

Result<KvArchiveCounts> restore_kv(const std::string& path, const std::string& fingerprint,
                                   PrefixCache& cache, Runner& runner) {
  const File file = to_file(open_own_file(path), "rb");
  if (file == nullptr && errno == ENOENT) {
    return not_found(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  if (file == nullptr) {
    return invalid_argument(
        fmt::format("{} is not used: it must be a file of this user that others cannot write ({})",
                    path, std::strerror(errno)));
  }
  RecordReader reader(file.get());
  const int64_t page_bytes = runner.page_bytes();
  HR_RETURN_IF_ERROR(check_file_header(reader, path, fingerprint, page_bytes));
  KvArchiveCounts counts;
  constexpr int32_t kDamaged = -1, kLeftOut = -2;
  std::vector<int32_t> nodes;  // of the records, or why there is none
  Record record;
  for (Record::State state = record.read(reader, page_bytes); state != Record::State::kEnd;
       state = record.read(reader, page_bytes)) {
    const auto parent = static_cast<size_t>(std::max(record.header.parent, 0));
    const bool is_child = record.header.parent >= 0;
    const bool has_parent = !is_child || (parent < nodes.size() && nodes[parent] >= 0);
    const bool behind_left_out = is_child && parent < nodes.size() && nodes[parent] == kLeftOut;
    const bool left_out = behind_left_out && state != Record::State::kDamaged;
    nodes.push_back(left_out ? kLeftOut : kDamaged);
    if (state == Record::State::kDamaged || !has_parent) {
      ++(left_out ? counts.left_out : counts.damaged);
      continue;
    }
    const PrefixKey key{.salt = {record.salt.data(), record.salt.size()},
                        .adapter = record.header.adapter,
                        .arithmetic = record.header.arithmetic};
    const std::optional<RestoredUnit> unit =
        cache.restore_unit(key, is_child ? nodes[parent] : -1, record.tokens, record.slots);
    if (!unit) {  // the pool is full, or the tree has it
      nodes.back() = kLeftOut;
      ++counts.left_out;
      continue;
    }
    nodes.back() = unit->node;
    for (size_t i = 0; i < unit->pages.size(); ++i) {
      const Status written = runner.write_page(
          std::span(record.pages)
              .subspan(i * static_cast<size_t>(page_bytes), static_cast<size_t>(page_bytes)),
          unit->pages[i]);
      if (written.ok()) continue;
      cache.clear();  // the unit is in the tree already
      return written;
    }
    ++counts.units;
    counts.bytes += static_cast<int64_t>(record.pages.size());
  }
  return counts;
}

}  // namespace headrace
