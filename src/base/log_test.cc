#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace headrace::log_test {
namespace {

// stderr is a pipe that holds a page, for as long as this lives.
class PipedLog {
 public:
  PipedLog() : kept_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0);
    ::fcntl(ends_[1], F_SETPIPE_SZ, 4096);
    ::dup2(ends_[1], STDERR_FILENO);
  }
  ~PipedLog() {
    ::dup2(kept_, STDERR_FILENO);
    for (const int each : {kept_, ends_[0], ends_[1]}) ::close(each);
  }
  std::string read() const {
    std::string text(1 << 16, '\0');
    const ssize_t count = ::read(ends_[0], text.data(), text.size());
    text.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return text;
  }

 private:
  int kept_;
  int ends_[2] = {-1, -1};
};

TEST(Log, NobodyWhoReadsHoldsNobodyUp) {
  PipedLog log;
  const std::string line(1000, 'x');
  for (int i = 0; i < 1000; ++i) log_raw_line(line);  // a pipe's page has room for four
  const std::string first = log.read();
  EXPECT_EQ(first.substr(0, 1001), line + "\n");
  log_raw_line("and on");
  const std::string next = log.read();
  EXPECT_NE(next.find("lines were lost"), std::string::npos) << next;
  EXPECT_TRUE(next.ends_with("and on\n")) << next;
}

TEST(Log, LongLinesAreWhole) {
  PipedLog log;
  const std::string line(4000, 'y');
  log_raw_line(line);
  EXPECT_EQ(log.read(), line + "\n");
}

}  // namespace
}  // namespace headrace::log_test
