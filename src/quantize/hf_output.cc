#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "quantize/output_model.h"
#include "quantize/packed_integers.h"
#include "tensor/quantised_row.h"
#include "weights/safetensors_writer.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeight = ".weight";

// A file of a folder that says what a model's weights are, or is them.
bool is_of_weights(const fs::path& file) {
  constexpr std::array<std::string_view, 6> kEndings = {".safetensors", ".bin",  ".pt",
                                                        ".pth",         ".gguf", ".index.json"};
  const std::string name = file.filename().string();
  return name == "config.json" ||
         std::ranges::any_of(kEndings, [&](std::string_view end) { return name.ends_with(end); });
}

Json weight_scheme(const HfOutputOptions& options) {
  return Json::object()
      .set("num_bits", options.grid.bits)
      .set("type", "int")
      .set("symmetric", options.grid.symmetric)
      .set("group_size", options.grid.group)
      .set("strategy", "group")
      .set("block_structure", Json())
      .set("dynamic", false)
      .set("actorder", options.act_order ? Json("static") : Json())
      .set("observer", "minmax")
      .set("observer_kwargs", Json::object());
}

Json quantisation_config(const HfOutputOptions& options, Json ignored) {
  Json group = Json::object()
                   .set("targets", Json(Json::Array{Json("Linear")}))
                   .set("weights", weight_scheme(options))
                   .set("input_activations", Json())
                   .set("output_activations", Json())
                   .set("format", "pack-quantized");
  return Json::object()
      .set("quant_method", "compressed-tensors")
      .set("format", "pack-quantized")
      .set("quantization_status", "compressed")
      .set("global_compression_ratio", Json())
      .set("kv_cache_scheme", Json())
      .set("ignore", std::move(ignored))
      .set("config_groups", Json::object().set("group_0", std::move(group)));
}

// What the folder has of each tensor, in the order of its file.
class HfLayout {
 public:
  struct Entry {
    SafetensorsEntry entry;
    const SafetensorsTensor* source = nullptr;  // copied, or replaced by write_float()
    float offset = 0;                           // of its values to those under the GGUF name
  };

  HfLayout(const HfOutputOptions& options, const SafetensorsWeightSource& source)
      : names_(options.names),
        grid_(options.grid),
        matrices_(options.matrices.begin(), options.matrices.end()) {
    for (const auto& file : source.files()) {
      for (const SafetensorsTensor& tensor : file->plan().tensors) add(tensor);
    }
  }

  const std::vector<Entry>& entries() const { return entries_; }
  // Of a tensor under its GGUF name, or of a part of a quantised matrix: "blk.0.attn_q.weight",
  // "blk.0.attn_q.weight_scale".
  const std::map<std::string, size_t, std::less<>>& places() const { return places_; }
  // Modules with weights that stay float.
  const std::set<std::string>& ignored() const { return ignored_; }
  size_t matrix_count() const { return matrix_count_; }

 private:
  void add(const SafetensorsTensor& tensor) {
    const auto match = match_in_model(names_, tensor.name);
    const std::string gguf = match ? match->gguf : tensor.name;
    const bool plain =
        match && match->expert < 0 && match->second_half.empty() && match->form == HfForm::kPlain;
    if (plain && matrices_.contains(gguf)) return add_matrix(tensor, gguf);
    if (tensor.shape.rank() == 2 && tensor.name.ends_with(kWeight) &&
        tensor.name.find("embed_tokens") == std::string::npos) {
      ignored_.insert(tensor.name.substr(0, tensor.name.size() - kWeight.size()));
    }
    if (plain) places_.emplace(gguf, entries_.size());
    entries_.push_back({{tensor.name, DType::kF32, tensor.shape, tensor.type->name},
                        &tensor,
                        match ? match->offset : 0.0f});
  }

  void add_matrix(const SafetensorsTensor& tensor, const std::string& gguf) {
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const int64_t groups = columns / grid_.group;
    add_part(tensor.name, gguf, "_packed", "I32", {rows, packed_words(columns, grid_.bits)});
    add_part(tensor.name, gguf, "_scale", dtype_name(grid_.scale_type), {rows, groups});
    if (!grid_.symmetric) {
      add_part(tensor.name, gguf, "_zero_point", "I32", {packed_words(rows, grid_.bits), groups});
    }
    add_part(tensor.name, gguf, "_shape", "I64", {2});
    ++matrix_count_;
  }

  void add_part(const std::string& name, const std::string& gguf, std::string_view part,
                std::string_view type, const Shape& shape) {
    places_.emplace(gguf + std::string(part), entries_.size());
    entries_.push_back({{name + std::string(part), DType::kF32, shape, type}});
  }

  const HfTensorNames names_;
  const IntegerGrid grid_;
  const std::set<std::string, std::less<>> matrices_;
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> places_;
  std::set<std::string> ignored_;
  size_t matrix_count_ = 0;
};

class HfOutput final : public OutputModel {
 public:
  HfOutput(const HfOutputOptions& options, HfLayout layout,
           std::unique_ptr<SafetensorsWriter> writer)
      : options_(options), layout_(std::move(layout)), writer_(std::move(writer)) {}

  bool continued() const override { return writer_->file().continued(); }

  void write(std::string_view name, const QuantisedMatrix& matrix) override {
    const auto& integers = std::get<IntegerMatrix>(matrix);
    const int32_t bits = integers.grid.bits;
    const int64_t words = packed_words(integers.columns, bits);
    std::vector<uint32_t> packed(static_cast<size_t>(integers.rows * words));
    for (int64_t r = 0; r < integers.rows; ++r) {
      for (int64_t w = 0; w < words; ++w) {
        packed[static_cast<size_t>(r * words + w)] =
            packed_word(integers.row(r), integers.columns, 1, bits, w);
      }
    }
    write_words(name, "_packed", packed);
    write_scales(name, integers);
    const std::array<int64_t, 2> shape{integers.rows, integers.columns};
    std::memcpy(part(name, "_shape").data(), shape.data(), sizeof shape);
  }

  Result<QuantisedMatrix> read(std::string_view name) const override {
    const SafetensorsEntry& entry = entry_of(std::string(name) + "_packed");
    std::array<int64_t, 2> shape;
    std::memcpy(shape.data(), part(name, "_shape").data(), sizeof shape);
    IntegerMatrix matrix(options_.grid, entry.shape[0], entry.shape[1] * 32 / options_.grid.bits);
    if (shape[0] != matrix.rows || shape[1] != matrix.columns) {
      return corrupt(fmt::format("{}: {}: was not written", options_.partial, name));
    }
    const int64_t words = entry.shape[1], per_word = 32 / matrix.grid.bits;
    const std::vector<uint32_t> packed = words_of(name, "_packed");
    for (int64_t r = 0; r < matrix.rows; ++r) {
      for (int64_t c = 0; c < matrix.columns; ++c) {
        const uint32_t word = packed[static_cast<size_t>(r * words + c / per_word)];
        matrix.row(r)[c] = unpacked_value(word, c % per_word, matrix.grid.bits);
      }
    }
    read_scales(name, matrix);
    return QuantisedMatrix(std::move(matrix));
  }

  void write_float(std::string_view name, std::span<const float> values) override {
    const HfLayout::Entry& entry = layout_.entries()[place_of(name)];
    std::vector<float> in_file(values.begin(), values.end());
    for (float& value : in_file) value -= entry.offset;
    quantise_row(*entry.source->type->dtype, in_file, writer_->data(place_of(name)));
  }

  Result<std::vector<float>> read_float(std::string_view name) const override {
    const HfLayout::Entry& entry = layout_.entries()[place_of(name)];
    std::vector<float> values(static_cast<size_t>(entry.source->elements));
    dequantise_row(*entry.source->type->dtype, writer_->data(place_of(name)), values);
    for (float& value : values) value += entry.offset;
    return values;
  }

  Status copy_rest() override {
    for (size_t i = 0; i < layout_.entries().size(); ++i) {
      const SafetensorsTensor* const tensor = layout_.entries()[i].source;
      if (tensor != nullptr) std::ranges::copy(tensor->bytes, writer_->data(i).begin());
    }
    return ok_status();
  }

  Status flush() override { return writer_->file().flush(); }

  Status finish() override {
    HR_RETURN_IF_ERROR(flush());
    writer_.reset();
    HR_RETURN_IF_ERROR(write_config());
    std::error_code error;
    for (const auto& file : fs::directory_iterator(options_.source, error)) {
      if (!file.is_regular_file() || is_of_weights(file.path())) continue;
      fs::copy_file(file.path(), fs::path(options_.partial) / file.path().filename(),
                    fs::copy_options::overwrite_existing, error);
      if (error) break;
    }
    if (!error) error = copy_modules();
    if (!error) fs::rename(options_.partial, options_.path, error);
    if (!error) return ok_status();
    return internal_error(fmt::format("{}: {}", options_.path, error.message()));
  }

 private:
  // Folders of a sentence-transformers model: how its rows become vectors.
  std::error_code copy_modules() const {
    std::error_code error, ignored;
    const fs::path source = options_.source;
    for (const std::string& name : module_folders()) {
      if (!fs::is_directory(source / name, ignored)) continue;
      fs::copy(source / name, fs::path(options_.partial) / name,
               fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
      if (error) break;
    }
    return error;
  }
  // That modules.json names; of a folder without one, how rows are pooled.
  std::vector<std::string> module_folders() const {
    const Result<Json> json = read_json("modules.json");
    if (!json.ok()) return {"1_Pooling"};
    std::vector<std::string> names;
    if (!json->is_array()) return names;
    for (const Json& module : json->as_array()) {
      const Json* const path = module.is_object() ? module.find("path") : nullptr;
      if (path == nullptr || !path->is_string()) continue;
      const std::string& name = path->as_string();
      const bool plain = !name.empty() && name.find_first_of("/\\") == name.npos && name[0] != '.';
      if (plain) names.push_back(name);
    }
    return names;
  }

  Result<Json> read_json(const std::string& name) const {
    const std::string path = options_.source + "/" + name;
    HR_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
    auto json =
        parse_json({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
    if (!json.ok()) return json.status().with_context(path);
    return json;
  }

  Status write_config() const {
    HR_ASSIGN_OR_RETURN(Json config, read_json("config.json"));
    Json ignored = Json::array();
    for (const std::string& module : layout_.ignored()) ignored.push(module);
    if (!layout_.ignored().contains("lm_head")) ignored.push("lm_head");
    config.set("quantization_config", quantisation_config(options_, std::move(ignored)));
    const std::string to = options_.partial + "/config.json";
    std::ofstream out(to, std::ios::binary);
    out << write_json(config) << '\n';
    out.close();
    if (out) return ok_status();
    return internal_error(fmt::format("{}: cannot be written", to));
  }

  size_t place_of(std::string_view name) const {
    const auto found = layout_.places().find(name);
    CHECK(found != layout_.places().end());
    return found->second;
  }
  const SafetensorsEntry& entry_of(std::string_view name) const {
    return layout_.entries()[place_of(name)].entry;
  }
  std::span<std::byte> part(std::string_view name, std::string_view of) const {
    return writer_->data(place_of(std::string(name) + std::string(of)));
  }
  // A tensor may begin anywhere in a file.
  std::vector<uint32_t> words_of(std::string_view name, std::string_view of) const {
    const auto bytes = part(name, of);
    std::vector<uint32_t> words(bytes.size() / sizeof(uint32_t));
    std::memcpy(words.data(), bytes.data(), bytes.size());
    return words;
  }
  void write_words(std::string_view name, std::string_view of,
                   std::span<const uint32_t> words) const {
    CHECK(part(name, of).size() == words.size_bytes());
    std::memcpy(part(name, of).data(), words.data(), words.size_bytes());
  }

  void write_scales(std::string_view name, const IntegerMatrix& matrix) const {
    std::vector<float> scales;
    std::vector<int8_t> zeros;
    for (const GroupScale& scale : matrix.scales) {
      scales.push_back(scale.scale);
      zeros.push_back(static_cast<int8_t>(scale.zero));
    }
    quantise_row(matrix.grid.scale_type, scales, part(name, "_scale"));
    if (matrix.grid.symmetric) return;
    const int64_t words = packed_words(matrix.rows, matrix.grid.bits), groups = matrix.groups();
    std::vector<uint32_t> packed(static_cast<size_t>(words * groups));
    for (int64_t w = 0; w < words; ++w) {
      for (int64_t g = 0; g < groups; ++g) {
        packed[static_cast<size_t>(w * groups + g)] =
            packed_word(zeros.data() + g, matrix.rows, groups, matrix.grid.bits, w);
      }
    }
    write_words(name, "_zero_point", packed);
  }

  void read_scales(std::string_view name, IntegerMatrix& matrix) const {
    std::vector<float> scales(matrix.scales.size());
    dequantise_row(matrix.grid.scale_type, part(name, "_scale"), scales);
    for (size_t i = 0; i < scales.size(); ++i) matrix.scales[i].scale = scales[i];
    if (matrix.grid.symmetric) return;
    const std::vector<uint32_t> packed = words_of(name, "_zero_point");
    const int64_t per_word = 32 / matrix.grid.bits, groups = matrix.groups();
    for (int64_t r = 0; r < matrix.rows; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        const uint32_t word = packed[static_cast<size_t>(r / per_word * groups + g)];
        matrix.scale(r, g).zero = unpacked_value(word, r % per_word, matrix.grid.bits);
      }
    }
  }

  const HfOutputOptions options_;
  const HfLayout layout_;
  std::unique_ptr<SafetensorsWriter> writer_;
};

}  // namespace

Result<std::unique_ptr<OutputModel>> create_hf_output(const HfOutputOptions& options,
                                                      const SafetensorsWeightSource& source) {
  HfLayout layout(options, source);
  if (layout.matrix_count() != options.matrices.size()) {
    return unsupported(fmt::format("{}: {} of {} matrices lie in pieces, which are not quantised",
                                   options.source, options.matrices.size() - layout.matrix_count(),
                                   options.matrices.size()));
  }
  std::error_code error;
  fs::create_directories(options.partial, error);
  if (error) {
    return invalid_argument(
        fmt::format("{}: cannot be made: {}", options.partial, error.message()));
  }
  std::vector<SafetensorsEntry> entries;
  for (const HfLayout::Entry& entry : layout.entries()) entries.push_back(entry.entry);
  HR_ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::create(options.partial + "/model.safetensors",
                                                             entries, OldFile::kContinue));
  return std::unique_ptr<OutputModel>(
      std::make_unique<HfOutput>(options, std::move(layout), std::move(writer)));
}

}  // namespace headrace
