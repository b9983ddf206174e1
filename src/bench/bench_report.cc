#include "bench/bench_report.h"

#include <algorithm>
#include <ctime>
#include <fstream>

#include <fmt/format.h>

#include "cli/version.h"

namespace headrace {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string utc_time(int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string size_text(int64_t bytes) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  const auto value = static_cast<double>(bytes);
  return value < kGiB ? fmt::format("{:.2f} MiB", value / kMiB)
                      : fmt::format("{:.2f} GiB", value / kGiB);
}

std::string count_text(int64_t count) {
  const auto value = static_cast<double>(count);
  return value < 1e9 ? fmt::format("{:.2f} M", value / 1e6) : fmt::format("{:.2f} B", value / 1e9);
}

const char* backend(const BenchSetup& setup) { return setup.gpu_info.empty() ? "CPU" : "CUDA"; }

std::string markdown_row(const BenchSetup& setup, const BenchResult& result) {
  return fmt::format("| {:<30} | {:>10} | {:>10} | {:<10} | {:>7} | {:>15} | {:>20} |\n",
                     setup.model_type, size_text(setup.model_size),
                     count_text(setup.model_parameters), backend(setup), setup.threads,
                     result.test.name(),
                     fmt::format("{:.2f} ± {:.2f}", result.average_ts(), result.stddev_ts()));
}

std::string markdown_heading() {
  const std::string heading =
      fmt::format("| {:<30} | {:>10} | {:>10} | {:<10} | {:>7} | {:>15} | {:>20} |\n", "model",
                  "size", "params", "backend", "threads", "test", "t/s");
  return heading + fmt::format(
                       "| {:-<30} | {:->9}: | {:->9}: | {:-<10} | {:->6}: | {:->14}: | "
                       "{:->19}: |\n",
                       "", "", "", "", "", "", "");
}

std::string csv_value(const Json& value) {
  if (value.is_bool()) return value.as_bool() ? "\"1\"" : "\"0\"";
  if (!value.is_string()) return fmt::format("\"{}\"", write_json(value));
  std::string quoted = "\"";
  for (char c : value.as_string()) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_line(const Json::Object& fields, bool names) {
  std::string line;
  for (const auto& [name, value] : fields) {
    if (!line.empty()) line += ',';
    line += names ? name : csv_value(value);
  }
  return line + "\n";
}

// One member a line, as llama-bench indents its array.
std::string json_block(const Json::Object& fields) {
  std::string block = "  {\n";
  for (size_t i = 0; i < fields.size(); ++i) {
    block += fmt::format("    \"{}\": {}{}\n", fields[i].first, write_json(fields[i].second),
                         i + 1 < fields.size() ? "," : "");
  }
  return block + "  }";
}

}  // namespace

BenchSetup bench_setup(const ModelStack& stack) {
  const StackInfo& info = stack.info();
  const ModelConfig& config = stack.config();
  return {.cpu_info = cpu_name(),
          .gpu_info = info.on_gpu ? info.device : "",
          .model_filename = info.model_path,
          .model_type = fmt::format("{} {}", config.architecture, info.weight_types),
          .model_size = info.file_bytes > 0 ? info.file_bytes : info.weight_bytes,
          .model_parameters = info.parameter_count,
          .threads = info.threads};
}

Json::Object bench_fields(const BenchSetup& setup, const BenchResult& result, bool with_samples) {
  Json row = Json::object();
  row.set("build_commit", build_commit()).set("build_number", build_number());
  row.set("cpu_info", setup.cpu_info).set("gpu_info", setup.gpu_info);
  row.set("backends", backend(setup));
  row.set("model_filename", setup.model_filename).set("model_type", setup.model_type);
  row.set("model_size", setup.model_size).set("model_n_params", setup.model_parameters);
  row.set("n_batch", setup.batch_tokens).set("n_ubatch", setup.batch_tokens);
  row.set("n_threads", setup.threads).set("cpu_mask", "0x0").set("cpu_strict", false);
  row.set("poll", 50).set("type_k", setup.kv_type).set("type_v", setup.kv_type);
  row.set("n_gpu_layers", 0).set("n_cpu_moe", 0).set("split_mode", "layer").set("main_gpu", 0);
  row.set("no_kv_offload", false).set("flash_attn", -1).set("devices", "auto");
  row.set("tensor_split", "0.00").set("tensor_buft_overrides", "none").set("load_mode", "auto");
  row.set("embeddings", false).set("no_op_offload", 0).set("no_host", false);
  row.set("fit_target", 0).set("fit_min_ctx", 0);
  row.set("n_prompt", result.test.prompt).set("n_gen", result.test.generate);
  row.set("n_depth", result.test.depth).set("test_time", utc_time(result.test_time_unix_s));
  row.set("avg_ns", static_cast<int64_t>(result.average_ns()));
  row.set("stddev_ns", static_cast<int64_t>(result.stddev_ns()));
  row.set("avg_ts", result.average_ts()).set("stddev_ts", result.stddev_ts());
  row.set("n_streams", std::max(result.test.streams, 1));
  if (with_samples) {
    Json samples_ns = Json::array(), samples_ts = Json::array();
    for (int64_t ns : result.samples_ns) samples_ns.push(ns);
    for (double ts : result.samples_ts) samples_ts.push(ts);
    row.set("samples_ns", std::move(samples_ns)).set("samples_ts", std::move(samples_ts));
  }
  return row.as_object();
}

Json kv_slots_json(const KvWaste& slots) {
  Json json = Json::object();
  const auto total = static_cast<double>(std::max<int64_t>(slots.total, 1));
  for (const KvWastePart& part : kKvWasteParts) {
    json.set(part.name, static_cast<double>(slots.*part.slots) / total);
  }
  return json.set("waste", slots.share());
}

std::string kv_slots_text(const KvWaste& slots) {
  if (slots.held() == 0) return "not seen: too few steps";
  const auto of_held = [&](int64_t part) {
    return 100 * static_cast<double>(part) / static_cast<double>(slots.held());
  };
  const auto external =
      100 * static_cast<double>(slots.external) / static_cast<double>(slots.total);
  return fmt::format(
      "{:.2f} % of held slots: {:.2f} reserved, {:.2f} internal, {:.2f} padding; external {:.2f} % "
      "of all",
      100 * slots.share(), of_held(slots.reserved), of_held(slots.internal), of_held(slots.padding),
      external);
}

std::string BenchReport::begin() {
  if (format_ == BenchFormat::kMarkdown) return markdown_heading();
  return format_ == BenchFormat::kJson ? "[" : "";
}

std::string BenchReport::row(const BenchSetup& setup, const BenchResult& result) {
  const bool first = rows_++ == 0;
  switch (format_) {
    case BenchFormat::kMarkdown:
      return markdown_row(setup, result);
    case BenchFormat::kJson:
      return (first ? "\n" : ",\n") + json_block(bench_fields(setup, result, true));
    case BenchFormat::kJsonLines:
      return write_json(Json(bench_fields(setup, result, true))) + "\n";
    case BenchFormat::kCsv: {
      const Json::Object fields = bench_fields(setup, result, false);
      return (first ? csv_line(fields, true) : "") + csv_line(fields, false);
    }
  }
  return {};
}

std::string BenchReport::end() {
  if (format_ == BenchFormat::kMarkdown) {
    return fmt::format("\nbuild: {} ({})\n", build_commit(), build_number());
  }
  return format_ == BenchFormat::kJson ? "\n]\n" : "";
}

}  // namespace headrace
