// A model: embedding, layers, head over one packed batch of tokens. The engine owns the batch, the
// cache and the sampling; a model owns its weights. Const after load, but for pack_more(): any
// thread, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/timeline.h"
#include "models/adapter_rows.h"
#include "models/layer_tap.h"
#include "models/product_tap.h"
#include "models/shard.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_view.h"
#include "ops/op.h"
#include "ops/states/state_view.h"
#include "weights/hf_names.h"
#include "weights/model_config.h"
#include "weights/packed_cache.h"
#include "weights/weight_source.h"

namespace headrace {

// What the engine needs to know of a model: sizes, and what each layer keeps in the cache.
struct LayerKv {
  int32_t kv_heads = 0;
  int32_t k_dim = 0;  // components of a key
  int32_t v_dim = 0;
  int32_t window = 0;        // > 0: sliding
  int32_t chunk = 0;         // > 0: of the window, the rows of one run of positions (AttentionArgs)
  bool v_aliases_k = false;  // a value is the first v_dim components of its key: a latent
  int32_t index_dim = 0;     // > 0: of a key of sparse attention's index, beside these
  int32_t source_dim = 0;    // > 0: numbers of a token that keys of several tokens are made of
  int32_t rate = 1;          // tokens that share a key (KvLayerView::rate)
  // Empty: as the engine keeps all that have no format of their own.
  std::optional<KvFormat> k_format = {};
  std::optional<KvFormat> v_format = {};
  friend bool operator==(const LayerKv&, const LayerKv&) = default;
};
struct KvFormats {
  KvFormat k = KvFormat::kF16;
  KvFormat v = k;
};
// How a layer's part of a block lies, the V part behind the K part; base and stride are the
// caller's. `formats`: where the layer has none of its own.
inline KvLayerView kv_view(const LayerKv& layer, KvFormats formats, KeyLayout keys,
                           int32_t block_tokens) {
  KvLayerView kv{.k_format = layer.k_format.value_or(formats.k),
                 .v_format = layer.v_format.value_or(formats.v),
                 .keys = keys,
                 .v_aliases_k = layer.v_aliases_k,
                 .block_tokens = block_tokens,
                 .kv_heads = layer.kv_heads,
                 .k_dim = layer.k_dim,
                 .v_dim = layer.v_dim,
                 .index_dim = layer.index_dim,
                 .source_dim = layer.source_dim,
                 .rate = layer.rate};
  kv.v_offset = k_part_bytes(kv);
  kv.index_offset = kv.v_offset + v_part_bytes(kv);
  kv.source_offset = source_part_offset(kv);
  return kv;
}

struct ModelSpec {
  std::string architecture;
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t layer_count = 0;
  int32_t query_heads = 0;  // of the widest layer
  int32_t context_length = 0;
  std::vector<LayerKv> kv;  // [layer_count]; no key heads: the layer keeps nothing of a token
  // [layer_count] or empty: what the layer keeps of a sequence, whatever its length.
  std::vector<int64_t> state_bytes = {};
  // [layer_count] or empty: the layer whose keys and values a layer attends that keeps none of its
  // own (Gemma 3n, 4); -1: its own.
  std::vector<int32_t> keys_of = {};
  int32_t output_rows = 0;  // of the output matrix, where not all were loaded; 0: vocab_size

  int32_t logit_count() const { return output_rows > 0 ? output_rows : vocab_size; }
};
// The layer whose keys and values a layer attends.
inline int32_t layer_of_keys(const ModelSpec& model, int32_t layer) {
  const int32_t of = model.keys_of.empty() ? -1 : model.keys_of[static_cast<size_t>(layer)];
  return of < 0 ? layer : of;
}
// Bytes from the front of an entry with the states of all layers to that of each, and to its end:
// [layers + 1]. The end is 0 where no layer keeps one.
std::vector<int64_t> state_offsets(const ModelSpec& model);
inline int64_t state_entry_bytes(const ModelSpec& model) { return state_offsets(model).back(); }

// The rows of one step. T tokens of S sequences, packed without padding.
struct ForwardBatch {
  // A KV group's view of the batch: where new tokens go and which blocks each sequence holds.
  struct Group {
    std::span<const int64_t> slots;                // [T] block * block_tokens + offset
    std::span<const AttentionSequence> sequences;  // [S]
    const AttentionPlan* plan = nullptr;           // CUDA: their tiles, on the device
    // As in AttentionArgs: groups of one kind share their sequences. A plan names its own tables.
    int32_t table_offset = 0;
  };
  // Tokens, positions and slots lie in the device's memory.
  std::span<const TokenId> tokens;       // [T]
  std::span<const int32_t> positions;    // [T]
  std::span<const Group> groups;         // [groups]
  std::span<const int32_t> layer_group;  // [layers] index into groups

  // The rows that are read behind the last layer, where they are few: the last of a prompt, not the
  // others, whose last layer then ends with their keys and values.
  struct KeptRows {
    std::span<const int32_t> rows;  // [R] ascending, each once, 2 R <= T; in the device's memory
    Group group;                    // of the last layer; its sequences' rows lie in [0, R)
  };
  const KeptRows* kept = nullptr;  // null: all rows
  // Of models with states: the entries, and of each sequence, in the order of those of a group,
  // what it reads and writes.
  StateView states = {};
  // Of rows that have adapters, which were loaded for the model.
  BatchAdapters adapters = {};
  // Of a draft head that reads the hidden rows of another model: what make_features() made of the
  // token before each, [T, D]; else nothing.
  ConstTensorView features = {};
  // CPU: sees what the products multiply, of a model that was loaded for adapters. Null: nobody.
  ProductTap* products = nullptr;
};

struct LayerRange {
  int32_t first = 0;
  int32_t last = 0;  // one past
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelSpec& spec() const = 0;
  // The type of hidden rows: F32 on the CPU, BF16 on CUDA (F32 or F16 where the load asked for it).
  // Logits are F32.
  virtual DType activation_dtype() const = 0;
  // Bytes of weights in device memory.
  virtual int64_t weight_bytes() const = 0;
  // Of these, what the load has left where it lies in the file (ModelLoadOptions::pack_at_use).
  virtual int64_t unpacked_bytes() const { return 0; }
  // Packs at least `bytes_min` of them, or all. REQUIRES: no step is in flight
  virtual void pack_more(int64_t /*bytes_min*/) {}
  // The matrices whose products take adapters, by LinearLayer::site, under GGUF names
  // ("blk.3.attn_q"); none where the load asked for none (ModelLoadOptions::adapter_rank_max).
  virtual std::span<const MatrixStack> adapter_sites() const { return {}; }
  // An upper bound of the workspace that embed(), layers() and head() take for `tokens` rows in a
  // step, `logit_rows` rows a head() call and sequences up to `kv_length_max` tokens.
  virtual int64_t workspace_bytes(int32_t tokens, int32_t logit_rows, int32_t kv_length_max,
                                  int32_t thread_count) const = 0;

  virtual void embed(OpContext& context, const ForwardBatch& batch,
                     TensorView hidden /* [T, D] */) const = 0;
  // Behind the last layer of the model row i of `hidden` is batch.kept->rows[i], where there is
  // such a choice; what lies behind these rows is nobody's. `taps` are of layers in `range`.
  virtual void layers(OpContext& context, const ForwardBatch& batch, LayerRange range,
                      std::span<const KvLayerView> kv /* [layers] */,
                      TensorView hidden /* [T, D] */, LayerTaps taps) const = 0;
  // Of a draft head: a model's hidden rows of some layers, side by side, as the head's features.
  // REQUIRES: it is one
  virtual void make_features(OpContext& /*context*/, ConstTensorView /*rows*/,
                             TensorView /*features [R, D]*/) const {
    CHECK_MSG(false, "a model that reads no other's hidden rows makes no features");
  }
  // The final norm alone, in place: rows as transformers' last_hidden_state has them.
  virtual void normalise_rows(OpContext& context, TensorView rows /* [R, D] */) const = 0;
  // Final norm and output matrix of the rows asked for. REQUIRES: it was loaded. `rows` is
  // overwritten; rows of `logits` may lie apart.
  virtual void head(OpContext& context, TensorView rows /* [R, D] */,
                    TensorView logits /* [R, logit_count] */) const = 0;
};

enum class ComputeType {
  kFast,      // CPU: integers for quantised weights; CUDA: BF16
  kFastWide,  // CPU: activations of 16 bits where kFast has 8 (ops/linear/linear.h); CUDA: kFast
  kFloat32,   // weights and activations
  kFloat16,   // CUDA alone: weights and activations
};

struct ModelLoadOptions {
  ComputeType compute = ComputeType::kFast;
  // Matrices of a float type are quantised to this while they are packed (Q8_0, Q4_0, Q4_K).
  std::optional<DType> quantise_to;
  bool unpack_blocks = false;                 // CUDA: block types become 16 bits a weight
  bool pack_experts = false;                  // CUDA: experts of block types stay packed
  std::function<void(double done)> progress;  // may be empty; [0, 1]
  // CPU, or null. Packed matrices are those that it has; it outlives the model. Where it has none,
  // they are added to it.
  PackedCache* packed_cache = nullptr;
  // CPU. Asked before each matrix: true leaves it unpacked, to be packed by what multiplies it
  // until pack_more() does so for good (LinearWeight::defer). Empty: all are packed. The source
  // outlives the model then.
  std::function<bool()> pack_at_use;
  Timeline* timeline = nullptr;  // may be null: gets the parts of the load
  ShardSpec shard = {};          // CPU: what of the model is loaded
  bool with_head = true;         // false: no output matrix, where only hidden rows are read
  int32_t output_rows = 0;       // CPU: rows of the output matrix, the first ones; 0: all
  int32_t adapter_rank_max = 0;  // not split: of adapters that steps may have; 0: none
  int32_t adapter_slots = 0;     // GPU: how many these are at most (LoraSlots)
  // CPU: the layers that get weights, which alone may run, and of which alone the model keeps
  // something (ModelSpec::kv); empty: all.
  std::optional<LayerRange> layers = {};
};

// A tensor an architecture reads: for dummy weights and for shape checks.
struct TensorSpec {
  std::string name;
  Shape shape;
  bool exact = false;     // files have it in F32, whatever the type of matrices
  bool optional = false;  // a file without it has zeros
  int32_t below = 0;      // > 0: it has whole numbers below this, no two of a row alike
};

// One row per architecture: a pair of files and an entry in architectures().
struct Architecture {
  std::string_view name;  // as GGUF spells it: "llama"
  Result<ModelSpec> (*parse)(const ModelConfig& config);
  std::vector<TensorSpec> (*tensors)(const ModelConfig& config);
  Result<std::unique_ptr<Model>> (*load)(const ModelConfig& config, const WeightSource& weights,
                                         Device& device, const ModelLoadOptions& options);
  HfTensorNames (*hf_names)();  // its tensors in Hugging Face files
};

std::span<const Architecture> architectures();
// kUnsupported naming the architecture and those that are known.
Result<const Architecture*> find_architecture(std::string_view name);

}  // namespace headrace
