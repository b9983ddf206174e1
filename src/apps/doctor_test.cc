// What the doctor says of machines that are made here.
#include "apps/doctor.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tensor/device.h"

namespace headrace::doctor_test {
namespace {

namespace fs = std::filesystem;

class DoctorTest : public testing::Test {
 protected:
  ~DoctorTest() override { fs::remove_all(root_); }
  void write(const std::string& path, std::string_view text) const {
    const fs::path file = root_ + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string root_ = testing::TempDir() + "doctor_test";
};

TEST_F(DoctorTest, MemoryThatIsTooLittleIsTrouble) {
  write("/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n");
  EXPECT_EQ(memory_finding(root_).verdict, Verdict::kGood);
  EXPECT_EQ(memory_finding(root_).found, "8.2 GB free");
  write("/proc/meminfo", "MemTotal: 900000 kB\nMemAvailable: 800000 kB\n");
  EXPECT_EQ(memory_finding(root_).verdict, Verdict::kTrouble);
  EXPECT_NE(memory_finding(root_).remedy.find("--memory"), std::string::npos);
}

TEST_F(DoctorTest, HugePagesThatAreOffAreNoted) {
  const std::string file = "/sys/kernel/mm/transparent_hugepage/enabled";
  write(file, "always [madvise] never\n");
  EXPECT_EQ(huge_pages_finding(root_).verdict, Verdict::kGood);
  write(file, "always madvise [never]\n");
  EXPECT_EQ(huge_pages_finding(root_).verdict, Verdict::kNote);
}

TEST_F(DoctorTest, ACpuWithoutAvx2IsNoted) {
  EXPECT_EQ(cpu_finding(CpuFeatures{}).verdict, Verdict::kNote);
  EXPECT_EQ(cpu_finding(CpuFeatures{.avx2 = true}).verdict, Verdict::kGood);
}

TEST_F(DoctorTest, AGpuNeedsAProgramThatKnowsIt) {
  EXPECT_EQ(gpu_finding(root_).verdict, Verdict::kGood);
  write("/dev/nvidia0", "");
  if (!built_with_cuda()) {
    EXPECT_EQ(gpu_finding(root_).verdict, Verdict::kNote);
    EXPECT_NE(gpu_finding(root_).remedy.find("CUDA"), std::string::npos);
  }
}

TEST_F(DoctorTest, AFolderThatCannotBeMadeIsTrouble) {
  write("/file", "");
  EXPECT_EQ(disk_finding("models", root_ + "/file/hub").verdict, Verdict::kTrouble);
  EXPECT_NE(disk_finding("models", root_ + "/no/hub").verdict, Verdict::kTrouble);
}

TEST_F(DoctorTest, APortThatIsTakenIsNoted) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(descriptor, 1), 0);
  ASSERT_EQ(::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const uint16_t port = ntohs(address.sin_port);
  EXPECT_EQ(port_finding(port).verdict, Verdict::kNote);
  ::close(descriptor);
  EXPECT_EQ(port_finding(port).verdict, Verdict::kGood);
}

TEST_F(DoctorTest, TextAndJsonSayTheSame) {
  const std::vector<Finding> findings = {huge_pages_finding(root_), cpu_finding({.avx2 = true})};
  EXPECT_NE(findings_text(findings).find("note     huge pages  no transparent huge pages\n"),
            std::string::npos);
  const Json json = findings_json(findings);
  EXPECT_EQ(json.find("findings")->as_array()[0].find("verdict")->as_string(), "note");
  EXPECT_EQ(json.find("findings")->as_array()[1].find("remedy"), nullptr);
  EXPECT_FALSE(json.find("trouble")->as_bool());
}

}  // namespace
}  // namespace headrace::doctor_test
