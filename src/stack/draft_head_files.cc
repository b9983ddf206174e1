#include "stack/draft_head_files.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "models/decoder.h"
#include "models/decoder_spec.h"
#include "weights/safetensors_source.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHeadConfigBytesMax = 16 << 20;
constexpr int64_t kMedusaHeadsMax = 64, kMedusaBlocksMax = 16;
constexpr int64_t kHeadNumberMax = std::numeric_limits<int32_t>::max();

// The tensors of EAGLE's layers, in or out of "model.", of which EAGLE-3's one is "midlayer".
HfTensorNames eagle_names() {
  static const auto* const names = [] {
    const std::pair<const char*, const char*> in_layer[] = {
        {"input_layernorm.weight", "attn_norm.weight"},
        {"hidden_norm.weight", "hidden_norm.weight"},
        {"self_attn.q_proj.weight", "attn_q.weight"},
        {"self_attn.k_proj.weight", "attn_k.weight"},
        {"self_attn.v_proj.weight", "attn_v.weight"},
        {"self_attn.o_proj.weight", "attn_output.weight"},
        {"self_attn.q_proj.bias", "attn_q.bias"},
        {"self_attn.k_proj.bias", "attn_k.bias"},
        {"self_attn.v_proj.bias", "attn_v.bias"},
        {"self_attn.q_norm.weight", "attn_q_norm.weight"},
        {"self_attn.k_norm.weight", "attn_k_norm.weight"},
        {"self_attn.rotary_emb.inv_freq", ""},
        {"post_attention_layernorm.weight", "ffn_norm.weight"},
        {"mlp.gate_proj.weight", "ffn_gate.weight"},
        {"mlp.up_proj.weight", "ffn_up.weight"},
        {"mlp.down_proj.weight", "ffn_down.weight"}};
    const std::pair<const char*, const char*> others[] = {
        {"embed_tokens.weight", "token_embd.weight"},
        {"fc.weight", "fc.weight"},
        {"fc.bias", "fc.bias"},
        {"norm.weight", "output_norm.weight"},
        {"lm_head.weight", "output.weight"},
        {"d2t", ""},
        {"t2d", ""}};
    static std::deque<std::string> texts;
    auto* const table = new std::vector<HfTensorName>();
    const auto add = [&](std::string hf, std::string own) {
      texts.push_back(std::move(hf));
      const std::string& first = texts.back();
      texts.push_back(std::move(own));
      table->push_back({first, texts.back()});
    };
    for (const char* const front : {"", "model."}) {
      for (const auto& [hf, own] : others) add(std::string(front) + hf, own);
      for (const auto& [hf, own] : in_layer) {
        const bool read = *own != '\0';
        add(fmt::format("{}midlayer.{}", front, hf), read ? fmt::format("blk.0.{}", own) : "");
        add(fmt::format("{}layers.{{}}.{}", front, hf),
            read ? fmt::format("blk.{{}}.{}", own) : "");
      }
    }
    return table;
  }();
  return *names;
}

fs::path folder_of(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path();
}

Result<Json> read_head_config(const std::string& path) {
  const std::string file = (folder_of(path) / "config.json").string();
  HR_ASSIGN_OR_RETURN(const auto mapped, MappedFile::open(file));
  const auto bytes = mapped->bytes();
  if (bytes.size() > kHeadConfigBytesMax) {
    return corrupt(fmt::format("{}: {} bytes are no configuration", file, bytes.size()));
  }
  auto json = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!json.ok()) return json.status().with_context(file);
  if (!json->is_object()) return corrupt(fmt::format("{}: is no JSON object", file));
  return json;
}

// The weights of a head, which Medusa's makers keep in a file of another name.
Result<std::unique_ptr<SafetensorsWeightSource>> open_head_weights(const std::string& path,
                                                                   HfTensorNames names) {
  std::error_code ignored;
  fs::path at = fs::path(path).extension() == ".json" ? folder_of(path) : fs::path(path);
  const fs::path medusa = folder_of(path) / "medusa_lm_head.safetensors";
  if (fs::is_directory(at, ignored) && fs::exists(medusa, ignored)) at = medusa;
  return SafetensorsWeightSource::open(at.string(), {.names = names});
}

Result<int64_t> read_size(const Json& config, std::string_view name, int64_t otherwise,
                          int64_t most) {
  const Json* const value = config.find(name);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_int() && value->as_int() >= 1 && value->as_int() <= most) return value->as_int();
  return corrupt(fmt::format("config.json: {}: is not a whole number between 1 and {}", name, most),
                 std::string(name));
}

bool is_set(const Json& config, std::string_view name) {
  const Json* const value = config.find(name);
  return value != nullptr && value->is_bool() && value->as_bool();
}

// A head's own tensors, and for what it has none of, those of the model.
class HeadWeights final : public WeightSource {
 public:
  HeadWeights(std::unique_ptr<SafetensorsWeightSource> own,
              std::shared_ptr<const WeightSource> model)
      : own_(std::move(own)), model_(std::move(model)) {}

  const SafetensorsWeightSource& own() const { return *own_; }
  using WeightSource::get;
  using WeightSource::get_matrix;
  bool has(std::string_view name) const override { return own_->has(name) || shared(name); }
  std::vector<std::string_view> names() const override { return own_->names(); }
  Result<ConstTensorView> get(std::string_view name) const override {
    return own_->has(name) || !shared(name) ? own_->get(name) : model_->get(in_model(name));
  }
  Result<ConstTensorView> get_matrix(std::string_view name, int64_t index) const override {
    return own_->has(name) || !shared(name) ? own_->get_matrix(name, index)
                                            : model_->get_matrix(in_model(name), index);
  }
  Result<std::shared_ptr<const RowReader>> rows(std::string_view name,
                                                int64_t index) const override {
    return own_->has(name) || !shared(name) ? own_->rows(name, index)
                                            : model_->rows(in_model(name), index);
  }
  std::optional<WeightInfo> info(std::string_view name) const override {
    return own_->has(name) || !shared(name) ? own_->info(name) : model_->info(in_model(name));
  }
  std::string name_in_file(std::string_view name) const override {
    return own_->name_in_file(name);
  }
  // What is the model's may be read by it: it stays.
  void release(const ConstTensorView& view) const override {
    if (is_own(view)) own_->release(view);
  }
  void release_rows(const ConstTensorView& view, int64_t first, int64_t last) const override {
    if (is_own(view)) own_->release_rows(view, first, last);
  }
  std::string_view description() const override { return own_->description(); }

 private:
  std::string_view in_model(std::string_view name) const {
    return name == "output.weight" && !model_->has(name) ? "token_embd.weight" : name;
  }
  bool shared(std::string_view name) const {
    return (name == "token_embd.weight" || name == "output.weight") && model_->has(in_model(name));
  }
  bool is_own(const ConstTensorView& view) const {
    return std::ranges::any_of(own_->files(), [&](const auto& file) {
      const auto bytes = file->bytes();
      return view.data >= bytes.data() && view.data < bytes.data() + bytes.size();
    });
  }

  const std::unique_ptr<SafetensorsWeightSource> own_;
  const std::shared_ptr<const WeightSource> model_;
};

const SafetensorsTensor* find_tensor(const SafetensorsWeightSource& source, std::string_view name) {
  for (const auto& file : source.files()) {
    if (const SafetensorsTensor* const tensor = file->find(name); tensor != nullptr) return tensor;
  }
  return nullptr;
}

class EagleLoader {
 public:
  EagleLoader(const std::string& path, ProposalMethod method, const HeadTarget& target,
              Device& device)
      : path_(path), eagle3_(method == ProposalMethod::kEagle3), target_(target), device_(device) {}

  Result<LoadedHead> load(int32_t output_rows) {
    HR_ASSIGN_OR_RETURN(outer_, read_head_config(path_));
    HR_ASSIGN_OR_RETURN(auto own, open_head_weights(path_, eagle_names()));
    auto joined = std::make_unique<HeadWeights>(std::move(own), target_.weights);
    weights_ = joined.get();
    loaded_.weights = std::move(joined);
    HR_ASSIGN_OR_RETURN(ModelConfig config, read_config());
    HR_RETURN_IF_ERROR(read_ids(config));
    HR_RETURN_IF_ERROR(read_layers());
    HR_ASSIGN_OR_RETURN(DecoderSpec spec, spec_of(config));
    HR_RETURN_IF_ERROR(check_tensors_of(spec));
    const bool cut = output_rows > 0 && loaded_.head.tokens.empty();
    const ModelLoadOptions options{.compute = target_.compute,
                                   .output_rows = cut ? output_rows : 0};
    HR_ASSIGN_OR_RETURN(loaded_.model,
                        load_decoder(std::move(spec), *loaded_.weights, device_, options));
    return std::move(loaded_);
  }

 private:
  // A head has the numbers of a Llama's layer, whatever its model is.
  Result<ModelConfig> read_config() {
    Json config = outer_;
    if (const Json* const inner = outer_.find("transformer_layer_config"); inner != nullptr) {
      if (!inner->is_object()) return corrupt("transformer_layer_config is no object");
      config = *inner;
    }
    config.set("architectures", Json(Json::Array{Json("LlamaForCausalLM")}));
    HR_ASSIGN_OR_RETURN(const int64_t layers, read_size(config, "num_hidden_layers", 1, 16));
    config.set("num_hidden_layers", Json(layers));
    if (const Json* const types = config.find("layer_types"); types != nullptr) {
      config.set("layer_types", Json());
    }
    HR_ASSIGN_OR_RETURN(ModelConfig read, model_config_from_json(config, Json(), path_));
    read.context_length = read.context_length_max = target_.served_length;
    read.served_length = target_.served_length;
    read.qkv_bias = weights_->own().has("blk.0.attn_q.bias");
    read.tied_embeddings = false;
    if (read.vocab != target_.spec.vocab_size) {
      return invalid_argument(fmt::format(
          "it reads {} tokens, and the model that it is to propose for has {}: the head is another "
          "model's",
          read.vocab, target_.spec.vocab_size));
    }
    return read;
  }

  // d2t [draft vocabulary]: how far behind id i of the head the model's id is.
  Status read_ids(const ModelConfig& config) {
    const SafetensorsTensor* const map = find_tensor(weights_->own(), "d2t");
    if (map == nullptr) return ok_status();
    if (map->type->name != "I64" || map->shape.rank() != 1 || map->elements < 1) {
      return corrupt(fmt::format("tensor d2t: is {} {}, no list of I64", map->type->name,
                                 map->shape.to_string()));
    }
    std::vector<int64_t> offsets(static_cast<size_t>(map->elements));
    std::memcpy(offsets.data(), map->bytes.data(), map->bytes.size());
    for (size_t i = 0; i < offsets.size(); ++i) {
      const int64_t id =
          static_cast<int64_t>(i) + std::clamp<int64_t>(offsets[i], -1, kHeadNumberMax);
      if (id < 0 || id >= config.vocab) {
        return corrupt(
            fmt::format("tensor d2t: token {} is {}, the model has {}", i, id, config.vocab));
      }
      loaded_.head.tokens.push_back(static_cast<TokenId>(id));
    }
    return ok_status();
  }

  // Which rows of the model it reads. EAGLE-3's are what goes into three layers, as its makers have
  // it, unless the configuration names others.
  Status read_layers() {
    const int32_t layers = target_.spec.layer_count;
    if (!eagle3_) {
      loaded_.head.layers = {layers - 1};
      loaded_.head.normalised = true;
      return ok_status();
    }
    std::vector<int64_t> ids = {2, layers / 2, layers - 3};
    if (const Json* const named = named_layers(); named != nullptr) {
      ids.clear();
      for (const Json& id : named->as_array()) ids.push_back(id.is_int() ? id.as_int() : -1);
    }
    for (const int64_t id : ids) {
      if (id < 1 || id > layers) {
        return invalid_argument(
            fmt::format("it reads what goes into layer {}, and the model that it is to propose for "
                        "has layers 0 "
                        "to {}: the head is another model's",
                        id, layers - 1));
      }
      loaded_.head.layers.push_back(static_cast<int32_t>(id - 1));
    }
    return ok_status();
  }

  const Json* named_layers() const {
    const Json* const eagle = outer_.find("eagle_config");
    for (const Json* const in : {&outer_, eagle}) {
      if (in == nullptr || !in->is_object()) continue;
      const Json* const ids = in->find("eagle_aux_hidden_state_layer_ids");
      if (ids != nullptr && ids->is_array() && !ids->as_array().empty()) return ids;
    }
    return nullptr;
  }

  Result<DecoderSpec> spec_of(const ModelConfig& config) const {
    DecoderSpec spec = uniform_decoder(config);
    const SafetensorsWeightSource& own = weights_->own();
    const int64_t model_width = target_.spec.hidden_size;
    const int64_t sources = std::ssize(loaded_.head.layers);
    const int64_t fc_columns = eagle3_ ? sources * model_width : 2 * model_width;
    const auto fc = own.info("fc.weight");
    if (!fc || fc->shape.rank() != 2) return corrupt("tensor fc.weight: missing, or no matrix");
    if (fc->shape[1] != fc_columns || (!eagle3_ && config.hidden != model_width)) {
      return invalid_argument(
          fmt::format("its fc.weight takes rows of {} numbers, and the model that it is to propose "
                      "for gives {} "
                      "({} of {}): the head is another model's",
                      fc->shape[1], fc_columns, eagle3_ ? sources : 2, model_width));
    }
    spec.features = {.use = eagle3_ ? FeatureUse::kBeside : FeatureUse::kJoined,
                     .fc_columns = fc_columns,
                     .fc_bias = own.has("fc.bias"),
                     .norm_first = is_set(outer_, "norm_before_residual")};
    spec.output_vocab = static_cast<int32_t>(loaded_.head.tokens.size());
    DecoderLayerSpec& first = spec.layers.front();
    if (eagle3_) {
      first.attention().input = 2 * int64_t{config.hidden};
    } else {
      spec.output_norm = own.has("output_norm.weight") ? NormKind::kRms : NormKind::kNone;
      first.mixer_reads_x = !own.has("blk.0.attn_norm.weight");
    }
    if (own.has("blk.0.attn_q_norm.weight")) {
      for_each_attention(
          spec, [](AttentionSpec& attention, int32_t) { attention.qk_norm = QkNorm::kHead; });
    }
    return spec;
  }

  // Each tensor there and of its shape, and none that nobody reads.
  Status check_tensors_of(const DecoderSpec& spec) const {
    const std::vector<TensorSpec> wanted = decoder_tensors(spec);
    for (const TensorSpec& tensor : wanted) {
      const auto info = weights_->info(tensor.name);
      const std::string name = weights_->name_in_file(tensor.name);
      if (!info) return corrupt(fmt::format("tensor {}: missing", name), name);
      if (is_of_shape(info->shape, tensor.shape)) continue;
      return corrupt(
          fmt::format("tensor {}: shape {}, the head's sizes ask for {}", info->name_in_file,
                      info->shape.to_string(), tensor.shape.to_string()),
          name);
    }
    for (const std::string_view name : weights_->own().names()) {
      if (std::ranges::find(wanted, name, &TensorSpec::name) != wanted.end()) continue;
      return unsupported(fmt::format("tensor {}: heads of this kind have none",
                                     weights_->info(name)->name_in_file),
                         std::string(name));
    }
    return ok_status();
  }

  const std::string& path_;
  const bool eagle3_;
  const HeadTarget& target_;
  Device& device_;
  Json outer_;
  const HeadWeights* weights_ = nullptr;
  LoadedHead loaded_;
};

Result<LoadedHead> load_medusa(const std::string& path, int32_t output_rows,
                               const HeadTarget& target, Device& device) {
  HR_ASSIGN_OR_RETURN(const Json config, read_head_config(path));
  HR_ASSIGN_OR_RETURN(auto weights, open_head_weights(path, {}));
  MedusaSpec spec{.hidden_size = target.spec.hidden_size, .vocab_size = target.spec.vocab_size};
  const bool makers = config.find("medusa_num_heads") != nullptr;
  HR_ASSIGN_OR_RETURN(
      const int64_t heads,
      read_size(config, makers ? "medusa_num_heads" : "num_heads", 1, kMedusaHeadsMax));
  HR_ASSIGN_OR_RETURN(
      const int64_t blocks,
      read_size(config, makers ? "medusa_num_layers" : "num_hidden_layers", 1, kMedusaBlocksMax));
  spec.heads = static_cast<int32_t>(heads);
  spec.blocks = static_cast<int32_t>(blocks);
  for (const auto& [name, of_model] : {std::pair("hidden_size", target.spec.hidden_size),
                                       {"vocab_size", target.spec.vocab_size}}) {
    HR_ASSIGN_OR_RETURN(const int64_t own, read_size(config, name, of_model, kHeadNumberMax));
    if (own == of_model) continue;
    return invalid_argument(fmt::format(
        "its {} is {}, and {} in the model that it is to propose for: the heads are another "
        "model's",
        name, own, of_model));
  }
  if (output_rows > 0) spec.output_rows = std::min(output_rows, spec.vocab_size);
  LoadedHead loaded;
  HR_ASSIGN_OR_RETURN(loaded.medusa, MedusaHeads::load(spec, *weights, device, target.compute));
  loaded.head.medusa = loaded.medusa.get();
  loaded.head.layers = {target.spec.layer_count - 1};
  loaded.head.normalised = true;
  loaded.weights = std::move(weights);
  return loaded;
}

}  // namespace

ProposalMethod method_of_draft(const std::string& path) {
  const Result<Json> config = read_head_config(path);
  if (!config.ok()) return ProposalMethod::kDraftModel;
  const Json* const type = config->find("model_type");
  if (config->find("medusa_num_heads") != nullptr ||
      (type != nullptr && type->is_string() && type->as_string() == "medusa")) {
    return ProposalMethod::kMedusa;
  }
  const auto weights = open_head_weights(path, eagle_names());
  if (!weights.ok() || !(*weights)->has("fc.weight")) return ProposalMethod::kDraftModel;
  return (*weights)->has("blk.0.hidden_norm.weight") ? ProposalMethod::kEagle3
                                                     : ProposalMethod::kEagle;
}

Result<LoadedHead> load_draft_head(const std::string& path, ProposalMethod method,
                                   int32_t output_rows, const HeadTarget& target, Device& device) {
  CHECK(is_head(method));
  auto loaded = method == ProposalMethod::kMedusa
                    ? load_medusa(path, output_rows, target, device)
                    : EagleLoader(path, method, target, device).load(output_rows);
  if (!loaded.ok()) return loaded.status().with_context(path);
  loaded->head.name = path;
  return loaded;
}

}  // namespace headrace
