#include "engine/adapter_bank.h"

#include <gtest/gtest.h>

namespace headrace::adapter_bank_test {
namespace {

struct NamedAdapter final : Adapter {
  explicit NamedAdapter(const AdapterSpec& of) : spec(of) {}
  uint64_t key() const override { return 1; }
  int64_t bytes() const override { return 0; }
  int32_t rank() const override { return 1; }
  const AdapterSpec spec;
};

Result<AdapterBank::Adapters> load_named(const AdapterSpec& spec) {
  if (spec.path == "bad") return not_found("bad: there is no such adapter");
  return AdapterBank::Adapters(std::make_shared<NamedAdapter>(spec));
}

std::string path_of(const AdapterBank::Adapters& adapter) {
  return static_cast<const NamedAdapter&>(*adapter).spec.path;
}

TEST(AdapterBank, AdaptersComeAndGoByName) {
  AdapterBank bank(4, load_named);
  EXPECT_EQ(bank.find("a"), nullptr);
  ASSERT_TRUE(bank.load({"a", "x"}).ok());
  ASSERT_TRUE(bank.load({"b", "y"}).ok());
  EXPECT_EQ(path_of(bank.find("b")), "y");
  EXPECT_FALSE(bank.load({"a", "z"}).ok());
  EXPECT_FALSE(bank.load({"c", "bad"}).ok());
  EXPECT_EQ(bank.find("c"), nullptr);
  ASSERT_TRUE(bank.unload("a").ok());
  EXPECT_EQ(bank.unload("a").code(), StatusCode::kNotFound);
  ASSERT_EQ(bank.list().size(), 1u);
  EXPECT_EQ(bank.list()[0].spec.name, "b");
}

// The request that has it ends with it.
TEST(AdapterBank, WhatIsInUseStaysUntilItsLastRequest) {
  AdapterBank bank(1, load_named);
  ASSERT_TRUE(bank.load({"a", "x"}).ok());
  AdapterBank::Adapters used = bank.find("a");
  ASSERT_TRUE(bank.unload("a").ok());
  EXPECT_EQ(path_of(used), "x");
  const Status status = bank.load({"b", "y"});
  EXPECT_NE(status.message().find("for requests under way alone"), std::string_view::npos)
      << status.message();
  used.reset();
  EXPECT_TRUE(bank.load({"b", "y"}).ok());
  EXPECT_NE(bank.load({"c", "z"}).message().find("--max-cpu-loras"), std::string_view::npos);
}

TEST(AdapterBank, OneTakesTheOthersPlace) {
  AdapterBank bank(2, load_named);
  ASSERT_TRUE(bank.replace({"a", "x"}).ok());
  const AdapterBank::Adapters before = bank.find("a");
  ASSERT_TRUE(bank.replace({"a", "y"}).ok());
  EXPECT_EQ(path_of(before), "x");
  EXPECT_EQ(path_of(bank.find("a")), "y");
  EXPECT_EQ(bank.list().size(), 1u);
}

}  // namespace
}  // namespace headrace::adapter_bank_test
