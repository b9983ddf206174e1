#include "weights/hub_quantisation.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "weights/gguf.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHubConfigBytesMax = 16 << 20;

// A member that is there and not null.
const Json* member_of(const Json& object, std::string_view name) {
  const Json* member = object.find(name);
  return member == nullptr || member->is_null() ? nullptr : member;
}

class HubConfigReader {
 public:
  HubConfigReader(const Json& config, std::string_view path) : config_(config), path_(path) {}

  Result<HubQuantisation> read() const {
    if (!config_.is_object()) return corrupt_key("quantization_config", "is no JSON object");
    HR_ASSIGN_OR_RETURN(const std::string method, text("quant_method", method_of_old_files()));
    if (method == "gptq") return gptq();
    if (method == "awq") return awq();
    if (method == "compressed-tensors") return compressed_tensors();
    if (method == "fp8" || method == "fbgemm_fp8") return fp8();
    if (method == "modelopt" || method == "modelopt_fp4") return modelopt(config_);
    if (method == "bitnet") return bitnet();
    if (method == "mxfp4") return HubQuantisation{.method = HubMethod::kMxfp4};
    return unsupported_key("quant_method",
                           fmt::format("{} is not supported (gptq, awq, compressed-tensors, fp8, "
                                       "modelopt, mxfp4 and bitnet are)",
                                       method.empty() ? "none" : printable(method)));
  }

  // Of modelopt: what config.json says, or hf_quant_config.json under `quantization`.
  Result<HubQuantisation> modelopt(const Json& config) const {
    HR_ASSIGN_OR_RETURN(const std::string algorithm, text_in(config, "quant_algo", ""));
    if (algorithm == "FP8" || algorithm == "NVFP4") {
      return HubQuantisation{.method = HubMethod::kModelOpt};
    }
    return unsupported_key("quant_algo",
                           fmt::format("{} is not supported (FP8 and NVFP4 are)",
                                       algorithm.empty() ? "none" : printable(algorithm)));
  }

 private:
  Status corrupt_key(std::string_view key, std::string_view what) const {
    return corrupt(fmt::format("{}: {}: {}", path_, key, what), std::string(key));
  }
  // The keys are those of one object, which the field names.
  Status unsupported_key(std::string_view key, std::string_view what) const {
    return unsupported(fmt::format("{}: quantization_config: {}: {}", path_, key, what),
                       "quantization_config");
  }

  Result<std::string> text_in(const Json& object, std::string_view key,
                              std::string_view otherwise) const {
    const Json* member = member_of(object, key);
    if (member == nullptr) return std::string(otherwise);
    if (!member->is_string()) return corrupt_key(key, "is no text");
    return member->as_string();
  }
  Result<std::string> text(std::string_view key, std::string_view otherwise) const {
    return text_in(config_, key, otherwise);
  }
  Result<int64_t> number_in(const Json& object, std::string_view key, int64_t otherwise) const {
    const Json* member = member_of(object, key);
    if (member == nullptr) return otherwise;
    if (!member->is_int()) return corrupt_key(key, "is no whole number");
    return member->as_int();
  }

  // AutoGPTQ's and AutoAWQ's own files do not name the method.
  std::string_view method_of_old_files() const {
    if (member_of(config_, "w_bit") != nullptr) return "awq";
    if (member_of(config_, "damp_percent") != nullptr ||
        member_of(config_, "desc_act") != nullptr) {
      return "gptq";
    }
    return member_of(config_, "config_groups") != nullptr ? "compressed-tensors" : "";
  }

  Result<HubQuantisation> gptq() const {
    HubQuantisation found{.method = HubMethod::kGptq};
    HR_ASSIGN_OR_RETURN(found.bits, bits_of({4, 8}, "bits", 4));
    HR_ASSIGN_OR_RETURN(const std::string format, text("checkpoint_format", "gptq"));
    if (format != "gptq" && format != "gptq_v2") {
      return unsupported_key(
          "checkpoint_format",
          fmt::format("{} is not supported (gptq and gptq_v2 are)", printable(format)));
    }
    found.zeros_less_one = format == "gptq";
    return found;
  }

  Result<HubQuantisation> awq() const {
    HubQuantisation found{.method = HubMethod::kAwq};
    const bool old = member_of(config_, "bits") == nullptr;
    HR_ASSIGN_OR_RETURN(found.bits, bits_of({4, 4}, old ? "w_bit" : "bits", 4));
    HR_ASSIGN_OR_RETURN(std::string version, text("version", "gemm"));
    std::ranges::transform(version, version.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    if (version != "gemm") {
      return unsupported_key("version",
                             fmt::format("{} is not supported (gemm is)", printable(version)));
    }
    return found;
  }

  Result<int32_t> bits_of(std::array<int64_t, 2> known, std::string_view key,
                          int64_t otherwise) const {
    HR_ASSIGN_OR_RETURN(const int64_t bits, number_in(config_, key, otherwise));
    if (bits == known[0] || bits == known[1]) return static_cast<int32_t>(bits);
    return unsupported_key(
        key, known[0] == known[1]
                 ? fmt::format("{} is not supported ({} is)", bits, known[0])
                 : fmt::format("{} is not supported ({} and {} are)", bits, known[0], known[1]));
  }

  Result<HubQuantisation> fp8() const {
    HubQuantisation found{.method = HubMethod::kFp8};
    HR_ASSIGN_OR_RETURN(const std::string format, text("fmt", "e4m3"));
    if (format != "e4m3" && format != "float8_e4m3fn") {
      return unsupported_key("fmt",
                             fmt::format("{} is not supported (e4m3 is)", printable(format)));
    }
    HR_RETURN_IF_ERROR(
        read_block(member_of(config_, "weight_block_size"), "weight_block_size", found));
    return found;
  }

  Result<HubQuantisation> bitnet() const {
    HR_ASSIGN_OR_RETURN(const std::string kind, text("linear_class", "bitlinear"));
    if (kind != "bitlinear" && kind != "autobitlinear") {
      return unsupported_key(
          "linear_class",
          fmt::format("{} is not supported (bitlinear and autobitlinear are)", printable(kind)));
    }
    HR_ASSIGN_OR_RETURN(const std::string mode, text("quantization_mode", "offline"));
    if (mode != "offline") {
      return unsupported_key("quantization_mode",
                             fmt::format("{} is not supported (offline is)", printable(mode)));
    }
    const Json* const norm = member_of(config_, "use_rms_norm");
    if (norm != nullptr && *norm != Json(false)) {
      return unsupported_key("use_rms_norm", "is not supported");
    }
    return HubQuantisation{.method = HubMethod::kBitNet, .divides = kind == "bitlinear"};
  }

  Status read_block(const Json* block, std::string_view key, HubQuantisation& found) const {
    if (block == nullptr) return ok_status();
    const auto is_size = [](const Json& size) {
      return size.is_int() && size.as_int() > 0 && size.as_int() <= 1 << 20;
    };
    if (!block->is_array() || block->as_array().size() != 2 || !is_size(block->as_array()[0]) ||
        !is_size(block->as_array()[1])) {
      return corrupt_key(key, "is no pair of sizes");
    }
    found.block_rows = static_cast<int32_t>(block->as_array()[0].as_int());
    found.block_columns = static_cast<int32_t>(block->as_array()[1].as_int());
    return ok_status();
  }

  Result<HubQuantisation> compressed_tensors() const {
    HubQuantisation found{.method = HubMethod::kCompressedTensors};
    HR_RETURN_IF_ERROR(check_format(config_));
    for (const std::string_view key : {"sparsity_config", "transform_config"}) {
      const Json* more = member_of(config_, key);
      if (more == nullptr || !more->is_object() || more->as_object().empty()) continue;
      HR_ASSIGN_OR_RETURN(const std::string format, text_in(*more, "format", ""));
      if (format == "dense") continue;
      return unsupported_key(key, "is not supported");
    }
    const Json* groups = member_of(config_, "config_groups");
    if (groups == nullptr || !groups->is_object()) {
      return corrupt_key("config_groups", "is no JSON object");
    }
    for (const auto& [name, group] : groups->as_object()) {
      if (!group.is_object()) continue;  // the name of a scheme: "W8A8"
      HR_RETURN_IF_ERROR(check_format(group));
      const Json* weights = member_of(group, "weights");
      if (weights == nullptr) continue;
      HR_RETURN_IF_ERROR(check_scheme(*weights, found));
    }
    return found;
  }

  Status check_format(const Json& object) const {
    constexpr std::string_view kKnown[] = {"",
                                           "dense",
                                           "pack-quantized",
                                           "int-quantized",
                                           "float-quantized",
                                           "nvfp4-pack-quantized",
                                           "mxfp4-pack-quantized",
                                           "naive-quantized",
                                           "mixed-precision"};
    HR_ASSIGN_OR_RETURN(const std::string format, text_in(object, "format", ""));
    if (std::ranges::find(kKnown, format) != std::end(kKnown)) return ok_status();
    return unsupported_key("format",
                           fmt::format("{} is not supported (pack-quantized, int-quantized, "
                                       "float-quantized, naive-quantized, nvfp4-pack-quantized "
                                       "and mxfp4-pack-quantized are)",
                                       printable(format)));
  }

  Status check_scheme(const Json& weights, HubQuantisation& found) const {
    HR_ASSIGN_OR_RETURN(const int64_t bits, number_in(weights, "num_bits", 8));
    HR_ASSIGN_OR_RETURN(const std::string type, text_in(weights, "type", "int"));
    if (bits != 4 && bits != 8) {
      return unsupported_key(
          "num_bits",
          fmt::format("{} {} is not supported (int and float 4 and 8 are)", printable(type), bits));
    }
    return read_block(member_of(weights, "block_structure"), "block_structure", found);
  }

  const Json& config_;
  std::string_view path_;
};

Result<Json> read_json(const fs::path& path) {
  HR_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path.string()));
  const auto bytes = file->bytes();
  if (bytes.size() > kHubConfigBytesMax) {
    return corrupt(fmt::format("{}: {} bytes, such a file has at most {}", path.string(),
                               bytes.size(), kHubConfigBytesMax));
  }
  auto json = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!json.ok()) return json.status().with_context(path.string());
  return json;
}

}  // namespace

Result<HubQuantisation> hub_quantisation_from_json(const Json& config, std::string_view path) {
  return HubConfigReader(config, path).read();
}

Result<std::optional<HubQuantisation>> hub_quantisation_of_folder(const std::string& folder) {
  std::error_code ignored;
  const fs::path config = fs::path(folder) / "config.json";
  if (!fs::exists(config, ignored)) return std::optional<HubQuantisation>();
  HR_ASSIGN_OR_RETURN(const Json json, read_json(config));
  // A model that also sees may say it of its text half.
  const Json* const text = member_of(json, "text_config");
  const bool has_half = text != nullptr && text->is_object();
  for (const Json* const holder : {&json, has_half ? text : &json}) {
    for (const std::string_view key : {"quantization_config", "compression_config"}) {
      const Json* quantised = member_of(*holder, key);
      if (quantised == nullptr) continue;
      HR_ASSIGN_OR_RETURN(const HubQuantisation found,
                          hub_quantisation_from_json(*quantised, config.string()));
      return std::optional(found);
    }
  }
  for (const std::string_view name : {"quantize_config.json", "quant_config.json"}) {
    const fs::path old = fs::path(folder) / name;
    if (!fs::exists(old, ignored)) continue;
    HR_ASSIGN_OR_RETURN(const Json own, read_json(old));
    HR_ASSIGN_OR_RETURN(const HubQuantisation found, hub_quantisation_from_json(own, old.string()));
    return std::optional(found);
  }
  const fs::path modelopt = fs::path(folder) / "hf_quant_config.json";
  if (fs::exists(modelopt, ignored)) {
    HR_ASSIGN_OR_RETURN(const Json own, read_json(modelopt));
    const Json* const quantised = member_of(own, "quantization");
    if (quantised == nullptr || !quantised->is_object()) {
      return corrupt(fmt::format("{}: quantization: is no JSON object", modelopt.string()));
    }
    if (member_of(*quantised, "quant_algo") == nullptr) return std::optional<HubQuantisation>();
    const std::string path = modelopt.string();
    HR_ASSIGN_OR_RETURN(const HubQuantisation found,
                        HubConfigReader(*quantised, path).modelopt(*quantised));
    return std::optional(found);
  }
  return std::optional<HubQuantisation>();
}

}  // namespace headrace
