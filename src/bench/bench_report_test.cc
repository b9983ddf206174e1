#include "bench/bench_report.h"

#include <gtest/gtest.h>

namespace headrace::bench_report_test {
namespace {

BenchSetup setup() {
  return {.cpu_info = "A \"fast\" CPU",
          .model_filename = "/models/m.gguf",
          .model_type = "llama Q4_1 + Q8_0",
          .model_size = 98362432,
          .model_parameters = 134515008,
          .batch_tokens = 512,
          .threads = 2,
          .kv_type = "f16"};
}

BenchResult result() {
  return {.test = {.prompt = 512},
          .test_time_unix_s = 1764000000,
          .samples_ns = {1'000'000'000, 2'000'000'000, 3'000'000'000},
          .samples_ts = {512.0, 256.0, 170.5}};
}

// The order in which scripts that read llama-bench's CSV expect them.
constexpr std::string_view kCsvHeading =
    "build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,model_size,"
    "model_n_params,n_batch,n_ubatch,n_threads,cpu_mask,cpu_strict,poll,type_k,type_v,n_gpu_layers,"
    "n_cpu_moe,split_mode,main_gpu,no_kv_offload,flash_attn,devices,tensor_split,"
    "tensor_buft_overrides,load_mode,embeddings,no_op_offload,no_host,fit_target,fit_min_ctx,"
    "n_prompt,n_gen,n_depth,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts,n_streams\n";

TEST(BenchReport, MarkdownHasTheColumnsOfLlamaBench) {
  BenchReport report(BenchFormat::kMarkdown);
  EXPECT_EQ(report.begin(),
            "| model                          |       size |     params | backend    | threads |"
            "            test |                  t/s |\n"
            "| ------------------------------ | ---------: | ---------: | ---------- | ------: |"
            " --------------: | -------------------: |\n");
  EXPECT_EQ(report.row(setup(), result()),
            "| llama Q4_1 + Q8_0              |  93.81 MiB |   134.52 M | CPU        |       2 |"
            "           pp512 |      312.83 ± 177.70 |\n");
  EXPECT_TRUE(report.end().starts_with("\nbuild: "));
}

TEST(BenchReport, CsvNamesItsFieldsOnceAndQuotes) {
  BenchReport report(BenchFormat::kCsv);
  const std::string first = report.row(setup(), result());
  EXPECT_TRUE(first.starts_with(kCsvHeading)) << first;
  EXPECT_NE(first.find("\"A \"\"fast\"\" CPU\""), std::string::npos);
  EXPECT_EQ(report.row(setup(), result()).find("build_commit"), std::string::npos);
}

TEST(BenchReport, JsonIsAnArrayWithSamples) {
  BenchReport report(BenchFormat::kJson);
  std::string text = report.begin() + report.row(setup(), result());
  text += report.row(setup(), result()) + report.end();
  const Result<Json> json = parse_json(text);
  ASSERT_TRUE(json.ok()) << json.status().message();
  ASSERT_EQ(json->as_array().size(), 2u);
  const Json& row = json->as_array()[0];
  EXPECT_EQ(row.find("n_prompt")->as_int(), 512);
  EXPECT_EQ(row.find("avg_ns")->as_int(), 2'000'000'000);
  EXPECT_EQ(row.find("stddev_ns")->as_int(), 1'000'000'000);
  EXPECT_EQ(row.find("samples_ts")->as_array().size(), 3u);
  EXPECT_EQ(row.find("test_time")->as_string(), "2025-11-24T16:00:00Z");
}

TEST(BenchTest, Names) {
  EXPECT_EQ((BenchTest{.prompt = 512}).name(), "pp512");
  EXPECT_EQ((BenchTest{.generate = 128}).name(), "tg128");
  EXPECT_EQ((BenchTest{.prompt = 512, .generate = 128}).name(), "pp512+tg128");
  EXPECT_EQ((BenchTest{.generate = 128, .depth = 128, .streams = 8}).name(), "tg128 @ d128 x8");
}

}  // namespace
}  // namespace headrace::bench_report_test
