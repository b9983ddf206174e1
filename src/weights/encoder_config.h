// EncoderConfig: the sizes of a bidirectional encoder (BERT and its kin) and how its rows become
// one vector a text, or the logits of its classes, from a GGUF file's metadata or the files of a
// Hugging Face folder: config.json, and modules.json, 1_Pooling/config.json,
// sentence_*_config.json and config_sentence_transformers.json where sentence-transformers wrote
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/classifier_head.h"
#include "base/status.h"
#include "weights/gguf.h"
#include "weights/hf_names.h"
#include "weights/pooling_config.h"

namespace headrace {

// What ModernBERT (Warner et al., 2024) has in place of learned positions: queries and keys are
// rotated, and most layers see what is near alone. Its norms stand in front of what they are of,
// the first layer's attention has none, and its feed-forward networks are gated.
struct ModernEncoder {
  double theta = 0, local_theta = 0;  // bases of the rotation, of layers that see all and of others
  int32_t window = 0;                 // of those: tokens seen on either side
  std::vector<bool> local;            // by layer
  bool attention_bias = false, ffn_bias = false, norm_bias = false, head_bias = false;
};

// What nomic-bert and jina-bert-v2 have in place of learned positions and plain networks. Their
// norms stand behind, as BERT's.
struct GatedEncoder {
  double theta = 0;          // base of the rotation of queries and keys; 0: they are not rotated
  float alibi_bias_max = 0;  // a score loses by distance (ALiBi); 0: it does not
  bool silu = false;         // of gates; else gelu
  bool qkv_joined = false;   // in one tensor
  bool gate_apart = false;   // from ffn_up, whose first half it is otherwise
  bool qkv_bias = false, out_bias = false, up_bias = false, down_bias = false;
};

struct EncoderConfig {
  std::string architecture;  // "bert", "roberta", "mpnet", "modernbert", "nomic-bert", ...
  int32_t vocab = 0;
  int32_t hidden = 0;
  int32_t layers = 0;
  int32_t heads = 0;  // divides hidden
  int32_t ffn = 0;
  int32_t positions = 0;       // rows of the table of positions
  int32_t position_first = 0;  // of a text's first token: RoBERTa's pad_token_id + 1
  int32_t token_types = 0;     // rows of their table; 0: none
  // MPNet: a bias of scores by how far apart two tokens are, in so many buckets; 0: none.
  int32_t relative_buckets = 0;
  std::optional<ModernEncoder> modern;  // of "modernbert"
  std::optional<GatedEncoder> gated;    // of "nomic-bert" and "jina-bert-v2"
  bool gelu_tanh = false;               // the approximation by tanh instead of erf
  float norm_eps = 0;
  int32_t length_max = 0;  // tokens of a text, special ones included
  Pooling pooling = Pooling::kMean;
  bool normalise = false;  // vectors have length 1
  ClassifierHead head;     // of *ForSequenceClassification: of the rows as `pooling` says

  int32_t head_dim() const { return hidden / heads; }
  // Numbers of a text's vector: of its classes where there is a head.
  int32_t dimensions() const { return head ? static_cast<int32_t>(head.labels.size()) : hidden; }
  // Whether the second text of a pair has a token type of its own. RoBERTa's tokenizers give none,
  // whatever the table has.
  bool has_second_type() const { return head && architecture == "bert" && token_types > 1; }
};

// Whether a class of config.json ("BertModel") is an encoder's that is known here.
bool is_encoder_class(std::string_view name);

// Errors: "file: key: what". What the files ask for and this program has not is refused by name.
Result<EncoderConfig> encoder_config_from_json(const PoolingFiles& files, std::string_view folder);
// Whether a GGUF file's general.architecture is an encoder's that is known here.
bool is_gguf_encoder(std::string_view architecture);
// Of a file whose architecture is an encoder's; empty: it is none. kUnsupported: one that is not
// known here.
Result<std::optional<EncoderConfig>> encoder_config_from_gguf(const GgufFile& file);
// The bucket of MPNet and T5 for a key `distance` tokens behind the query (negative: before it).
int32_t relative_bucket(int32_t distance, int32_t buckets);

// What encoders' tensors are called in Hugging Face files. A classifier's dense layer is cls, that
// to its classes cls.output, as in GGUF files; where there is no head its layers are not read.
HfTensorNames encoder_hf_names(const EncoderConfig& config);

}  // namespace headrace
