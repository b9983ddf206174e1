#include "weights/architecture_map.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::architecture_map_test {
namespace {

const std::string kMap = R"({"class": "AcmeForCausalLM", "like": "LlamaForCausalLM",
  "config": {"hidden_size": "sizes.width"}, "values": {"rms_norm_eps": 0.25},
  "tensors": {"model.layers.{}.self_attn.q_proj.weight": "h.{}.q.weight"}})";

Result<ArchitectureMap> read_map(std::string text, const std::string& from = "",
                                 const std::string& to = "") {
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return ArchitectureMap::from_json(parse_json(text).value(), "acme.json");
}
std::string map_error(const std::string& from, const std::string& to) {
  return std::string(read_map(kMap, from, to).status().message());
}

TEST(ArchitectureMap, GivesKeysAndTensorsOfTheKnownClass) {
  const auto map = read_map(kMap);
  ASSERT_TRUE(map.ok()) << map.status().message();
  const Json config = parse_json(R"({"architectures": ["AcmeForCausalLM"], "vocab_size": 9,
    "sizes": {"width": 32}})")
                          .value();
  const Json known = map->apply(config).value();
  EXPECT_EQ(known.find("hidden_size")->as_int(), 32);
  EXPECT_EQ(known.find("vocab_size")->as_int(), 9);
  EXPECT_EQ(known.find("rms_norm_eps")->as_double(), 0.25);
  EXPECT_EQ(known.find("architectures")->as_array().front().as_string(), "LlamaForCausalLM");
  const auto names = map->names(llama_hf_names()).value();
  EXPECT_EQ(match_hf_name(names->rows, "h.3.q.weight")->gguf, "blk.3.attn_q.weight");
  EXPECT_FALSE(match_hf_name(names->rows, "model.layers.3.self_attn.q_proj.weight"));
  EXPECT_EQ(match_hf_name(names->rows, "model.layers.3.self_attn.k_proj.weight")->gguf,
            "blk.3.attn_k.weight");
}

TEST(ArchitectureMap, WhatIsWrongIsNamed) {
  EXPECT_EQ(map_error(R"("values")", R"("worth")"),
            "--architecture-map: acme.json: worth: is no member (known: class, like, config, "
            "values, tensors)");
  EXPECT_EQ(
      map_error("AcmeForCausalLM", "LlamaForCausalLM"),
      "--architecture-map: acme.json: class: \"LlamaForCausalLM\" is known, and needs no map");
  EXPECT_TRUE(map_error(R"("LlamaForCausalLM")", R"("LamaForCausalLM")")
                  .starts_with("--architecture-map: acme.json: like: \"LamaForCausalLM\" is not "
                               "supported (known: LlamaForCausalLM, "));
  EXPECT_EQ(map_error(R"("like": "LlamaForCausalLM",)", ""),
            "--architecture-map: acme.json: like: is no name of a class");
  EXPECT_EQ(map_error(R"("sizes.width")", "3"),
            "--architecture-map: acme.json: config: \"hidden_size\" has no name");
  EXPECT_EQ(map_error("h.{}.q", "h.q"),
            "--architecture-map: acme.json: tensors: \"model.layers.{}.self_attn.q_proj.weight\" "
            "and \"h.q.weight\" have not equally many {}");
  const auto map = read_map(kMap, "q_proj", "p_proj");
  EXPECT_EQ(map->names(llama_hf_names()).status().message(),
            "--architecture-map: acme.json: tensors: \"model.layers.{}.self_attn.p_proj.weight\" "
            "is no tensor of LlamaForCausalLM");
  const Json other = parse_json(R"({"architectures": ["Other"]})").value();
  EXPECT_EQ(map->apply(other).status().message(),
            "--architecture-map: acme.json: class: the model's config.json is of \"Other\", not of "
            "\"AcmeForCausalLM\"");
  const Json without = parse_json(R"({"architectures": ["AcmeForCausalLM"]})").value();
  EXPECT_EQ(map->apply(without).status().message(),
            "--architecture-map: acme.json: config: the model's config.json has no "
            "\"sizes.width\", which is to be hidden_size");
  EXPECT_NE(ArchitectureMap::read("no/such.json").status().message().find("no/such.json"),
            std::string::npos);
}

}  // namespace
}  // namespace headrace::architecture_map_test
