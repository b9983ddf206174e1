#include "engine/kv_archive.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include "kv/sequence_blocks.h"

namespace headrace::kv_archive_test {
namespace {

constexpr int64_t kPageBytes = 64;
const std::vector<KvGroupSpec> kGroups = {
    {.block_tokens = 4}, {.kind = KvKind::kSliding, .window = 6, .block_tokens = 4}};

// Pages in plain memory.
class PageRunner final : public Runner {
 public:
  explicit PageRunner(int32_t pages) : pages_(static_cast<size_t>(pages) * kPageBytes) {}
  Ticket submit_forward(const StepPlan&) override { return Ticket(); }
  void submit_sample(Ticket) override {}
  Result<StepResult> wait(Ticket) override { return StepResult{}; }
  int64_t page_bytes() const override { return kPageBytes; }
  Status read_page(TierPage from, std::span<std::byte> to) override {
    const std::span<std::byte> page = at(BlockId(from.page));
    std::copy(page.begin(), page.end(), to.begin());
    return ok_status();
  }
  Status write_page(std::span<const std::byte> from, BlockId to) override {
    if (writes_left_-- <= 0) return unavailable("no memory");
    std::copy(from.begin(), from.end(), at(to).begin());
    return ok_status();
  }
  std::span<std::byte> at(BlockId page) {
    return std::span(pages_).subspan(static_cast<size_t>(page.value) * kPageBytes, kPageBytes);
  }

  void fail_after(int32_t writes) { writes_left_ = writes; }

 private:
  std::vector<std::byte> pages_;
  int32_t writes_left_ = 1 << 30;
};

// A cache and the memory of its pages.
struct World {
  explicit World(int32_t pages)
      : pool(pages),
        cache(pool, kGroups, {.rule = find_eviction_rule("lru").value()}),
        runner(pages) {}

  static std::byte mark(TokenId last_token, int32_t group) {
    return static_cast<std::byte>(last_token * 7 + group);
  }
  // Computes tokens and lets go of them. A page's bytes are the mark of its last token.
  void serve(const std::vector<TokenId>& tokens, PrefixKey key) {
    SequenceBlocks blocks(kGroups);
    PrefixPath path;
    std::vector<GroupBlocks> added;
    std::vector<BlockCopy> copies;
    const auto length = static_cast<int32_t>(tokens.size());
    blocks.grow(pool, 0, length, 0, Ticket(), added, copies);
    blocks.publish_full(pool, 0, length);
    for (const GroupBlocks& group : added) {
      for (size_t i = 0; i < group.blocks.size(); ++i) {
        const size_t last = (static_cast<size_t>(group.first_index) + i) * 4 + 3;
        if (last >= tokens.size()) continue;
        for (std::byte& byte : runner.at(group.blocks[i])) byte = mark(tokens[last], group.group);
      }
    }
    for (int32_t unit = 0; (unit + 1) * 4 <= length; ++unit) {
      cache.extend(key, path, TokenSpan(tokens).subspan(static_cast<size_t>(unit) * 4, 4), blocks);
    }
    blocks.release_all(pool, Ticket());
  }
  // Tokens that are found, each page with its bytes.
  int32_t found(const std::vector<TokenId>& tokens, PrefixKey key) {
    const PrefixMatch match = cache.match(key, tokens, static_cast<int32_t>(tokens.size()));
    if (match.tokens == 0) return 0;
    const PrefixHold hold = cache.acquire(match);
    for (const GroupBlocks& group : hold.pages) {
      for (size_t i = 0; i < group.blocks.size(); ++i) {
        const size_t last = (static_cast<size_t>(group.first_index) + i) * 4 + 3;
        for (std::byte byte : runner.at(group.blocks[i])) {
          EXPECT_EQ(byte, mark(tokens[last], group.group));
        }
        pool.release(group.blocks[i], Ticket());
      }
    }
    return match.tokens;
  }
  void check() {
    const Status of_pool = pool.check_invariants(), of_cache = cache.check_invariants();
    EXPECT_TRUE(of_pool.ok()) << of_pool.message();
    EXPECT_TRUE(of_cache.ok()) << of_cache.message();
    EXPECT_EQ(pool.free_count(), pool.total());
  }

  BlockPool pool;
  PrefixCache cache;
  PageRunner runner;
};

std::vector<TokenId> numbers(int32_t count, TokenId first) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class KvArchive : public ::testing::Test {
 protected:
  KvArchive() {
    world_.serve(one_, kA);
    world_.serve(two_, kB);
    counts_ = save_kv(path_, "model", world_.cache, world_.runner).value();
  }
  ~KvArchive() override { std::filesystem::remove(path_); }

  std::string read_file() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write_file(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  static constexpr PrefixKey kA{.salt = "a"}, kB{.salt = "b:c", .adapter = 3, .arithmetic = 7};
  const std::string path_ = testing::TempDir() + "kv_archive_test.kv";
  const std::vector<TokenId> one_ = numbers(24, 1), two_ = numbers(13, 100);
  World world_{64};
  KvArchiveCounts counts_;
};

TEST_F(KvArchive, WhatWasSavedIsFound) {
  EXPECT_EQ(counts_.units, 6 + 3);
  EXPECT_EQ(counts_.bytes, static_cast<int64_t>(read_file().size()));
  World other(64);
  const auto restored = restore_kv(path_, "model", other.cache, other.runner);
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  EXPECT_EQ(restored->units, counts_.units);
  EXPECT_EQ(restored->damaged, 0);
  EXPECT_EQ(other.found(one_, kA), 24);
  EXPECT_EQ(other.found(two_, kB), 12);
  EXPECT_EQ(other.found(one_, kB), 0);
  other.check();
}

TEST_F(KvArchive, ASmallerPoolTakesWhatItCan) {
  World other(7);
  const auto restored = restore_kv(path_, "model", other.cache, other.runner);
  ASSERT_TRUE(restored.ok());
  EXPECT_LT(restored->units, counts_.units);
  EXPECT_GT(other.found(one_, kA) + other.found(two_, kB), 0);
  other.check();
}

// A page that is in the tree and was never written would be found as another's.
TEST_F(KvArchive, APageThatCannotBeWrittenLeavesNothing) {
  World other(64);
  other.runner.fail_after(5);
  EXPECT_FALSE(restore_kv(path_, "model", other.cache, other.runner).ok());
  EXPECT_EQ(other.found(one_, kA) + other.found(two_, kB), 0);
  other.check();
}

// Of a pool that is too small the first come; the others are as sound as they were.
TEST_F(KvArchive, WhatHasNoRoomIsNotDamaged) {
  World other(5);
  const auto restored = restore_kv(path_, "model", other.cache, other.runner);
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  EXPECT_GT(restored->units, 0);
  EXPECT_GT(restored->left_out, 0);
  EXPECT_EQ(restored->units + restored->left_out, counts_.units);
  EXPECT_EQ(restored->damaged, 0);
}

// Whatever byte is damaged: what is found is right, and the rest is computed again.
TEST_F(KvArchive, DamageIsFoundByChecksum) {
  const std::string whole = read_file();
  int64_t damaged = 0;
  for (size_t at = 0; at < whole.size(); at += 13) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x20);
    write_file(bytes);
    World other(64);
    const auto restored = restore_kv(path_, "model", other.cache, other.runner);
    if (restored.ok()) {
      EXPECT_LT(restored->units, counts_.units) << "byte " << at;
      damaged += restored->damaged;
    } else {
      EXPECT_EQ(restored.status().code(), StatusCode::kInvalidArgument);
    }
    other.found(one_, kA);
    other.found(two_, kB);
    other.check();
    if (HasFailure()) FAIL() << "byte " << at;
  }
  EXPECT_GT(damaged, 0);
}

TEST_F(KvArchive, ATruncatedFileGivesItsBeginning) {
  const std::string whole = read_file();
  for (size_t size = 0; size < whole.size(); size += 97) {
    write_file(whole.substr(0, size));
    World other(64);
    const auto restored = restore_kv(path_, "model", other.cache, other.runner);
    if (restored.ok()) {
      EXPECT_LT(restored->units, counts_.units);
    }
    other.found(one_, kA);
    other.check();
  }
}

TEST_F(KvArchive, RefusesOtherModelsAndNamesWhatIsWrong) {
  World other(64);
  const auto restored = restore_kv(path_, "another", other.cache, other.runner);
  ASSERT_FALSE(restored.ok());
  EXPECT_NE(restored.status().message().find("another model"), std::string::npos);
  EXPECT_EQ(restore_kv(path_ + "-none", "model", other.cache, other.runner).status().code(),
            StatusCode::kNotFound);
  const auto saved = save_kv("/dev/null/kv", "model", world_.cache, world_.runner);
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.status().code(), StatusCode::kExhausted);
}

// What its records say of arithmetic has another meaning: it would be misread.
TEST_F(KvArchive, AFileOfAnOlderVersionIsRefused) {
  std::string bytes = read_file();
  ASSERT_EQ(bytes.substr(0, 8), "HRKV0003");
  bytes[7] = '2';
  write_file(bytes);
  World other(64);
  const auto restored = restore_kv(path_, "model", other.cache, other.runner);
  ASSERT_FALSE(restored.ok());
  EXPECT_EQ(restored.status().code(), StatusCode::kInvalidArgument);
}

// A file that may not grow: what was saved before stays.
TEST_F(KvArchive, AFullDiskLeavesTheFileThatWasThere) {
  const std::string before = read_file();
  rlimit old_limit{};
  ::getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit small{.rlim_cur = 100, .rlim_max = old_limit.rlim_max};
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto saved = save_kv(path_, "model", world_.cache, world_.runner);
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  ::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(saved.ok());
  EXPECT_NE(saved.status().message().find("File too large"), std::string::npos);
  EXPECT_EQ(read_file(), before);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
}

// The file holds what users sent. A link in its place neither sends it elsewhere nor brings in
// another's, and nothing is believed that somebody else may have written.
TEST_F(KvArchive, IsReadAndWrittenByItsOwnerAlone) {
  namespace fs = std::filesystem;
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0600));
  const std::string elsewhere = path_ + ".elsewhere";
  std::ofstream(elsewhere) << "mine";
  fs::create_symlink(elsewhere, path_ + ".part");
  ASSERT_TRUE(save_kv(path_, "model", world_.cache, world_.runner).ok());
  EXPECT_EQ(fs::file_size(elsewhere), 4u);
  fs::rename(path_, elsewhere);
  fs::create_symlink(elsewhere, path_);
  World other(64);
  EXPECT_EQ(restore_kv(path_, "model", other.cache, other.runner).status().code(),
            StatusCode::kInvalidArgument);
  fs::rename(elsewhere, path_);
  fs::permissions(path_, fs::perms(0666));
  EXPECT_EQ(restore_kv(path_, "model", other.cache, other.runner).status().code(),
            StatusCode::kInvalidArgument);
  fs::permissions(path_, fs::perms(0600));
  EXPECT_TRUE(restore_kv(path_, "model", other.cache, other.runner).ok());
}

}  // namespace
}  // namespace headrace::kv_archive_test
