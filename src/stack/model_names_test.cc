// What a model may be called, and that no name leads out of where models are kept.
#include "stack/model_names.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace headrace::model_names_test {
namespace {

namespace fs = std::filesystem;

std::string read_as(const std::string& text) {
  const Result<ModelName> name = ModelName::read(text);
  if (!name.ok()) return "refused";
  switch (name->kind()) {
    case NameKind::kPath:
      return "path";
    case NameKind::kHub:
      return "hub " + name->repo() + " " + name->revision() + " " + name->quant();
    case NameKind::kOllama:
      return "ollama " + name->repo() + " " + name->revision();
    case NameKind::kUrl:
      return "url " + name->repo();
  }
  return "";
}

TEST(ModelNames, AreOfTheHubOfOllamaOrAddresses) {
  EXPECT_EQ(read_as("Qwen/Qwen3-0.6B"), "hub Qwen/Qwen3-0.6B main ");
  EXPECT_EQ(read_as("Qwen/Qwen3-0.6B@pr/7"), "hub Qwen/Qwen3-0.6B pr/7 ");
  EXPECT_EQ(read_as("hf:maker/model:Q4_K_M"), "hub maker/model main Q4_K_M");
  EXPECT_EQ(read_as("hf.co/maker/model:Q4_K_M"), "hub maker/model main Q4_K_M");
  EXPECT_EQ(read_as("https://huggingface.co/maker/model"), "hub maker/model main ");
  EXPECT_EQ(read_as("llama3.2"), "ollama library/llama3.2 latest");
  EXPECT_EQ(read_as("llama3.2:1b"), "ollama library/llama3.2 1b");
  EXPECT_EQ(read_as("ollama:maker/model:tag"), "ollama maker/model tag");
  EXPECT_EQ(read_as("https://host:8080/a/m.gguf?x=/../y"), "url host+8080/a/m.gguf");
  EXPECT_EQ(read_as("https://huggingface.co/maker/model/resolve/main/m.gguf"),
            "url huggingface.co/maker/model/resolve/main/m.gguf");
  EXPECT_EQ(read_as("no-such.gguf"), "path");
  EXPECT_EQ(read_as("a/b/c"), "path");
  EXPECT_EQ(read_as("."), "path");
}

TEST(ModelNames, LeadNowhereElse) {
  for (const std::string bad : {"hf:../x",
                                "hf:maker/..",
                                "hf:maker/model@../../x",
                                "hf:maker/model:../x",
                                "hf:/etc",
                                "hf:maker/model:",
                                "ollama:../x",
                                "ollama:maker/../x",
                                "ollama:/etc/passwd:x",
                                "ollama:model:../x",
                                "ollama:a/b/c",
                                "https://host/../x.gguf",
                                "https://host/a//b.gguf",
                                "https://host/%2e%2e/x.gguf",
                                "https://../x.gguf",
                                "file:///etc/x.gguf",
                                "ftp://host/x.gguf",
                                "https://user@host/x.gguf",
                                "https://host/x.bin",
                                "https://x.gguf"}) {
    EXPECT_EQ(read_as(bad), "refused") << bad;
  }
  EXPECT_EQ(read_as(std::string("a\0b", 3)), "refused");
  EXPECT_EQ(read_as("hf:maker/" + std::string(2000, 'a')), "refused");
  EXPECT_EQ(read_as("ollama:" + std::string(300, 'a')), "refused");
}

TEST(ModelNames, FilesOfRegistriesAndAddressesHaveOnePlaceEach) {
  const std::string folder = model_files_folder().string();
  EXPECT_EQ(ModelName::read("llama3.2:1b")->file(), folder + "/ollama/library/llama3.2:1b.gguf");
  EXPECT_EQ(ModelName::read("llama3.2")->file(), folder + "/ollama/library/llama3.2.gguf");
  EXPECT_EQ(ModelName::read("https://host/a/m.gguf")->file(), folder + "/host/a/m.gguf");
}

TEST(ModelNames, OfAModelThatIsNotThereTellHowToGetIt) {
  EXPECT_NE(
      local_model("no-such-model:1b").status().message().find("('headrace pull no-such-model:1b')"),
      std::string::npos);
}

// What a client names is no question about the files of this machine.
TEST(ModelNames, MayBeReadWithoutALookAtTheDisk) {
  const std::string there = "tests/data";
  EXPECT_EQ(ModelName::read(there).value().kind(), NameKind::kPath);
  EXPECT_EQ(ModelName::read_name(there).value().kind(), NameKind::kHub);
  EXPECT_EQ(ModelName::read_name("tests/datum").value().kind(), NameKind::kHub);
  EXPECT_EQ(ModelName::read_name("tests").value().kind(), NameKind::kOllama);
  EXPECT_EQ(ModelName::read_name("/etc/hostname").value().kind(), NameKind::kPath);
}

}  // namespace
}  // namespace headrace::model_names_test
