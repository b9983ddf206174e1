#include "base/log_tail.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/log.h"

namespace headrace::log_tail_test {
namespace {

uint64_t last_number() {
  const auto lines = log_tail(0);
  return lines.empty() ? 0 : lines.back().number;
}

TEST(LogTail, HasTheLastLinesAsTheyWereWritten) {
  const uint64_t before = last_number();
  testing::internal::CaptureStderr();
  log_line(LogLevel::kWarning, "one\ntwo");
  const std::string written = testing::internal::GetCapturedStderr();
  const auto lines = log_tail(before);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].number, before + 1);
  EXPECT_EQ(lines[0].text + "\n", written);
  EXPECT_TRUE(lines[0].text.ends_with(" warning one\\x0atwo")) << lines[0].text;
  EXPECT_TRUE(log_tail(before + 1).empty());
}

TEST(LogTail, IsBounded) {
  testing::internal::CaptureStderr();
  for (size_t i = 0; i < kLoggedLines + 5; ++i) log_line(LogLevel::kError, std::to_string(i));
  std::string wide;
  while (wide.size() < 2 * kLoggedLineBytes) wide += "ä";
  log_line(LogLevel::kError, wide);
  testing::internal::GetCapturedStderr();
  const auto lines = log_tail(0);
  ASSERT_EQ(lines.size(), kLoggedLines);
  EXPECT_LE(lines.back().text.size(), kLoggedLineBytes);
  EXPECT_GE(lines.back().text.size(), kLoggedLineBytes - 1);
  EXPECT_EQ(lines.back().text.substr(lines.back().text.size() - 2), "ä");  // whole characters
  EXPECT_EQ(lines.back().number - lines.front().number, kLoggedLines - 1);
}

TEST(LogTail, ThreadsMayLogAndLook) {
  testing::internal::CaptureStderr();
  const uint64_t before = last_number();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int line = 0; line < 25; ++line) {
        log_line(LogLevel::kError, "x");
        log_tail(0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(log_tail(before).size(), 100u);
}

}  // namespace
}  // namespace headrace::log_tail_test
