// Names, revisions and files in a Hugging Face cache that is made here.
#include "stack/hub_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/model_flags.h"
#include "stack/model_names.h"
#include "stack/model_source.h"

namespace headrace::hub_cache_test {
namespace {

namespace fs = std::filesystem;

class HubCacheTest : public testing::Test {
 protected:
  HubCacheTest() {
    const fs::path model = home_ / "models--maker--tiny-1.5";
    write(model / "refs" / "main", "c0ffee");
    write(model / "refs" / "v2", "beef");
    write(model / "refs" / "pr" / "7", "beef");
    write(model / "snapshots" / "c0ffee" / "tiny-Q8_0.gguf", "");
    write(model / "snapshots" / "c0ffee" / "tiny-q4_k_m.gguf", "");
    write(model / "snapshots" / "c0ffee" / "mmproj-tiny.gguf", "");
    write(model / "snapshots" / "beef" / "tiny-Q5_0.gguf", "");
    setenv("HF_HUB_CACHE", home_.c_str(), 1);
  }
  ~HubCacheTest() override {
    unsetenv("HF_HUB_CACHE");
    fs::remove_all(home_);
  }
  static void write(const fs::path& path, std::string_view text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string snapshot(const std::string& commit) const {
    return (home_ / "models--maker--tiny-1.5" / "snapshots" / commit).string();
  }

  const fs::path home_ = fs::path(testing::TempDir()) / "hub_cache_test";
};

TEST_F(HubCacheTest, RevisionsAreBranchesTagsAndCommits) {
  EXPECT_EQ(*hub_snapshot("maker/tiny-1.5"), snapshot("c0ffee"));
  EXPECT_EQ(*hub_snapshot("maker/tiny-1.5@v2"), snapshot("beef"));
  EXPECT_EQ(*hub_snapshot("maker/tiny-1.5@pr/7"), snapshot("beef"));
  EXPECT_EQ(*hub_snapshot("maker/tiny-1.5@c0ffee"), snapshot("c0ffee"));
  const Status missing = hub_snapshot("maker/tiny-1.5@v3").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("'headrace pull maker/tiny-1.5@v3'"), std::string::npos)
      << missing.message();
  for (const char* bad : {"maker/tiny@", "maker/tiny@../x", "maker/tiny@a//b", "maker/tiny@.x",
                          "maker/tiny@a b", "@v2", "maker@v2"}) {
    EXPECT_FALSE(is_hub_name(bad)) << bad;
  }
  EXPECT_EQ(model_name("maker/tiny-1.5@v2"), "tiny-1.5");
}

TEST_F(HubCacheTest, FilesAsLlamaCppNamesThem) {
  const auto file = [&](const std::string& repo, const std::string& name = "",
                        const std::string& revision = "") {
    const Result<std::string> path = hub_gguf(repo, name, revision);
    return path.ok() ? fs::path(*path).filename().string() : path.status().message();
  };
  EXPECT_EQ(file("maker/tiny-1.5"), "tiny-q4_k_m.gguf");  // its own default, in any case
  EXPECT_EQ(file("maker/tiny-1.5:q8_0"), "tiny-Q8_0.gguf");
  EXPECT_EQ(file("maker/tiny-1.5", "tiny-Q8_0.gguf"), "tiny-Q8_0.gguf");
  EXPECT_EQ(file("maker/tiny-1.5", "", "v2"), "tiny-Q5_0.gguf");  // no Q4_K_M: the first
  EXPECT_NE(file("maker/tiny-1.5:Q2_K").find("no Q2_K in"), std::string::npos);
  EXPECT_NE(file("maker/tiny-1.5:Q2_K").find("tiny-Q8_0.gguf, tiny-q4_k_m.gguf"),
            std::string::npos);
  EXPECT_NE(file("tiny").find("expected USER/MODEL"), std::string::npos);
  EXPECT_NE(file("maker/other").find("headrace pull maker/other"), std::string::npos);
}

TEST_F(HubCacheTest, NamesWithAPrefix) {
  write(home_ / "models--maker--folder" / "refs" / "main", "feed");
  write(home_ / "models--maker--folder" / "snapshots" / "feed" / "config.json", "{}");
  const auto meant = [](const std::string& model, const std::string& revision = "") {
    const Result<std::string> path = local_model(model, revision);
    return path.ok() ? *path : path.status().message();
  };
  EXPECT_EQ(meant("hf:maker/tiny-1.5:Q8_0"), snapshot("c0ffee") + "/tiny-Q8_0.gguf");
  EXPECT_EQ(meant("hf:maker/tiny-1.5"), snapshot("c0ffee") + "/tiny-q4_k_m.gguf");
  EXPECT_EQ(meant("hf:maker/tiny-1.5", "v2"), snapshot("beef") + "/tiny-Q5_0.gguf");
  EXPECT_EQ(meant("hf:maker/folder"), "maker/folder");
  EXPECT_EQ(meant("x.gguf"), "x.gguf");
  EXPECT_NE(meant("hf:tiny").find("expected USER/MODEL"), std::string::npos);
  EXPECT_NE(meant("hf:maker/other").find("headrace pull maker/other"), std::string::npos);
}

TEST_F(HubCacheTest, FlagsSayWhichOfThem) {
  const auto model = [](std::vector<std::string> arguments) {
    CLI::App app{"", "test"};
    ModelFlags flags;
    add_model_flags(app, flags, ModelArgument::kFlagOrPositional);
    Status status = parse_arguments(app, std::move(arguments)).status();
    if (status.ok()) status = apply_model_flags(flags);
    return status.ok() ? flags.stack.model : status.message();
  };
  write(home_ / "models--maker--tiny-1.5" / "snapshots" / "f00d" / "config.json", "{}");
  write(home_ / "models--maker--tiny-1.5" / "refs" / "v3", "f00d");
  EXPECT_EQ(model({"maker/tiny-1.5", "--revision", "v3"}), "maker/tiny-1.5@v3");
  EXPECT_EQ(model({"maker/tiny-1.5", "--revision", "v2"}), snapshot("beef") + "/tiny-Q5_0.gguf");
  EXPECT_EQ(model({"maker/tiny-1.5"}), snapshot("c0ffee") + "/tiny-q4_k_m.gguf");
  EXPECT_EQ(model({"-hf", "maker/tiny-1.5:Q8_0"}), snapshot("c0ffee") + "/tiny-Q8_0.gguf");
  EXPECT_EQ(model({"-hf", "maker/tiny-1.5", "-hff", "tiny-Q8_0.gguf"}),
            snapshot("c0ffee") + "/tiny-Q8_0.gguf");
  EXPECT_EQ(model({"hf:maker/tiny-1.5:Q8_0"}), snapshot("c0ffee") + "/tiny-Q8_0.gguf");
  EXPECT_EQ(model({"-m", "hf:maker/tiny-1.5", "--revision", "v2"}),
            snapshot("beef") + "/tiny-Q5_0.gguf");
  const std::string file = snapshot("beef") + "/tiny-Q5_0.gguf";
  EXPECT_NE(model({"-m", file, "--revision", "v2"}).find("has revisions"), std::string::npos);
  EXPECT_NE(model({"-m", file, "-hf", "maker/tiny-1.5"}).find("two models"), std::string::npos);
  EXPECT_NE(model({"-m", file, "-hff", "x.gguf"}).find("needs --hf-repo"), std::string::npos);
}

}  // namespace
}  // namespace headrace::hub_cache_test
