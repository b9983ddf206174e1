#include "hub/file_choice.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stack/hub_cache.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// By what is lost and what is saved: about half of 8 bits first, then those that are a little
// smaller, then larger ones, and at last what loses much.
constexpr const char* kQuantOrder[] = {
    "Q4_K_M", "Q4_K_S", "Q4_1",  "IQ4_NL", "Q4_0",   "IQ4_XS", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0",
    "Q6_K",   "Q8_0",   "MXFP4", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K",   "BF16",   "F16",  "F32"};
constexpr double kMemoryShare = 0.75;  // the rest is for keys, values and others

// "folder/model-00001-of-00003.gguf" -> "folder/model"; of a file that is no part, without ".gguf".
std::string whole_of_part(const std::string& path) {
  const std::string stem = path.substr(0, path.size() - 5);
  const auto part = split_name(stem);
  return part ? part->whole : stem;
}

struct GgufChoice {
  std::vector<HubFile> files;
  int64_t bytes = 0;
};

// By the name of the whole.
std::map<std::string, GgufChoice> gguf_choices(const HubModel& model) {
  std::map<std::string, GgufChoice> choices;
  for (const HubFile& file : model.files) {
    const std::string name = fs::path(file.path).filename().string();
    if (!name.ends_with(".gguf") || name.starts_with("mmproj")) continue;
    GgufChoice& choice = choices[whole_of_part(file.path)];
    choice.files.push_back(file);
    choice.bytes += file.size;
  }
  return choices;
}

bool is_of_safetensors(const std::string& path) {
  const fs::path file(path);
  const std::string name = file.filename().string();
  if (file.has_parent_path()) return name.ends_with(".json") && !path.starts_with("onnx");
  if (name.starts_with("consolidated") || name == "params.json") return false;  // the same again
  const std::string ending = file.extension().string();
  return ending == ".safetensors" || ending == ".json" || ending == ".jinja" || ending == ".txt" ||
         ending == ".model" || ending == ".tiktoken";
}

std::string names_of_choices(const std::map<std::string, GgufChoice>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, choice] : choices) {
    names.push_back(fmt::format("{} ({})", name, bytes_text(choice.bytes)));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<std::vector<HubFile>> choose_quant(const std::map<std::string, GgufChoice>& choices,
                                          const std::string& repo, const std::string& quant) {
  for (const auto& [name, choice] : choices) {
    if (names_quant(name, quant)) return choice.files;
  }
  return not_found(fmt::format("{}: no {} in it; there is: {}", repo, quant,
                               choices.empty() ? "no .gguf file" : names_of_choices(choices)));
}

// What fits comes before what does not, then the order above.
Result<std::vector<HubFile>> choose_fitting(const std::map<std::string, GgufChoice>& choices,
                                            const std::string& repo, int64_t memory_bytes) {
  const auto limit = static_cast<int64_t>(static_cast<double>(memory_bytes) * kMemoryShare);
  for (const char* quant : kQuantOrder) {
    for (const auto& [name, choice] : choices) {
      if (choice.bytes <= limit && names_quant(name, quant)) return choice.files;
    }
  }
  for (const auto& [name, choice] : choices) {
    if (choice.bytes <= limit) return choice.files;
  }
  return exhausted(
      fmt::format("{}: no file of it fits in {} of memory: {}; name one to pull it "
                  "all the same, as {}:{}",
                  repo, bytes_text(memory_bytes), names_of_choices(choices), repo,
                  quant_of_name(choices.begin()->first)));
}

}  // namespace

std::string quant_of_name(const std::string& file) {
  for (const char* quant : kQuantOrder) {
    if (names_quant(file, quant)) return quant;
  }
  return {};
}

std::string bytes_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 1e9) return fmt::format("{:.1f} GB", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.0f} MB", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.0f} kB", value / 1e3);
  return fmt::format("{} bytes", bytes);
}

Result<std::vector<HubFile>> choose_files(const HubModel& model, const std::string& repo,
                                          const std::string& quant, int64_t memory_bytes) {
  const std::map<std::string, GgufChoice> choices = gguf_choices(model);
  if (!quant.empty()) return choose_quant(choices, repo, quant);
  std::vector<HubFile> files;
  bool weights = false, config = false;
  for (const HubFile& file : model.files) {
    if (!is_of_safetensors(file.path)) continue;
    weights |= file.path.ends_with(".safetensors");
    config |= file.path == "config.json";
    files.push_back(file);
  }
  if (weights && config) return files;
  if (!choices.empty()) return choose_fitting(choices, repo, memory_bytes);
  return unsupported(
      fmt::format("{}: it has neither safetensors with a config.json nor .gguf files", repo));
}

}  // namespace headrace
