#include "models/qwen4.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/round_up.h"
#include "models/qwen35.h"

namespace headrace {
namespace {

constexpr float kNormOffset = 1;  // norms multiply by 1 + weight

constexpr auto kQwen4Names = std::to_array<HfTensorName>({
    {"model.hyper_connection_mixer.hc_norm.weight", "output_hc_norm.weight", kNormOffset},
    {"model.hyper_connection_mixer.input_mix_weight_down.weight", "output_hc_down.weight"},
    {"model.hyper_connection_mixer.input_mix_weight_up.weight", "output_hc_up.weight"},
    {"model.layers.{}.attn_hyper_connection.hc_norm.weight", "blk.{}.hc_attn_norm.weight",
     kNormOffset},
    {"model.layers.{}.attn_hyper_connection.input_mix_weight_down.weight",
     "blk.{}.hc_attn_down.weight"},
    {"model.layers.{}.attn_hyper_connection.input_mix_weight_up.weight",
     "blk.{}.hc_attn_up.weight"},
    {"model.layers.{}.attn_hyper_connection.block_inject_weight.weight",
     "blk.{}.hc_attn_inject.weight"},
    {"model.layers.{}.mlp_hyper_connection.hc_norm.weight", "blk.{}.hc_ffn_norm.weight",
     kNormOffset},
    {"model.layers.{}.mlp_hyper_connection.input_mix_weight_down.weight",
     "blk.{}.hc_ffn_down.weight"},
    {"model.layers.{}.mlp_hyper_connection.input_mix_weight_up.weight", "blk.{}.hc_ffn_up.weight"},
    {"model.layers.{}.mlp_hyper_connection.block_inject_weight.weight",
     "blk.{}.hc_ffn_inject.weight"},
    {"model.layers.{}.self_attn.indexer.index_qk_proj.weight", "blk.{}.indexer.attn_qk.weight"},
    {"model.layers.{}.self_attn.indexer.q_layernorm.weight", "blk.{}.indexer.q_norm.weight",
     kNormOffset},
    {"model.layers.{}.self_attn.indexer.k_layernorm.weight", "blk.{}.indexer.k_norm.weight",
     kNormOffset},
    // What the configuration says, too.
    {"model.layers.{}.ple.ple_embedding.layer_multipliers", ""},
    {"model.layers.{}.ple.ple_embedding.ngram_heads_vocab_sizes", ""},
    {"model.layers.{}.ple.ple_embedding.ngram_heads_offsets", ""},
    {"model.layers.{}.ple.key_proj.weight", "blk.{}.ngram_key.weight"},
    {"model.layers.{}.ple.value_proj.weight", "blk.{}.ngram_value.weight"},
    {"model.layers.{}.ple.norm_key.weight", "blk.{}.ngram_key_norm.weight", kNormOffset},
    {"model.layers.{}.ple.norm_query.weight", "blk.{}.ngram_query_norm.weight", kNormOffset},
    {"model.layers.{}.ple.norm_conv.weight", "blk.{}.ngram_conv_norm.weight", kNormOffset},
    {"model.layers.{}.ple.conv1d.weight", "blk.{}.ngram_conv.weight"},
});

// Of Steele, Lea and Flood (2014).
uint64_t split_mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

bool is_prime(int64_t value) {
  for (int64_t divisor = 2; divisor * divisor <= value; ++divisor) {
    if (value % divisor == 0) return false;
  }
  return value > 1;
}

// With those of the parts of tables, last.
struct Qwen4HfNames {
  Qwen4HfNames() : names(names_before(kQwen4Names, qwen35_hf_names())) {
    strings.reserve(size_t{2} * kNgramPartsMax);  // the names point into it
    for (int32_t part = 0; part < kNgramPartsMax; ++part) {
      const std::string& hf = strings.emplace_back(
          fmt::format("model.layers.{{}}.ple.ple_embedding.ngram_embedding.shard_{}.weight", part));
      const std::string& gguf =
          strings.emplace_back(fmt::format("blk.{{}}.ngram_embd.{}.weight", part));
      names.push_back({hf, gguf});
    }
  }
  std::vector<std::string> strings;
  std::vector<HfTensorName> names;
};

BlockIndexSpec index_of(const ModelConfig& config, const RopeTable& rope) {
  const BlockIndexConfig& index = config.mixers.minimax.block_index;
  return {.heads = index.heads,
          .dim = index.dim,
          .rule = {.tokens = index.tokens, .top = index.top + 1, .local = 0, .pooled = true},
          .norm_eps = config.rms_eps,
          .inv_freq = rope.inv_freq,
          .angle_scale = rope.scale};
}

// The n-th of the layers that read the last few tokens.
NgramSpec ngrams_of(const ModelConfig& config, const CarriedSpec& carried, int32_t n) {
  const NgramConfig& ngrams = config.mixers.gemma.ngrams;
  const int32_t hashes = ngrams.hashes * (ngrams.size - 1);
  NgramSpec spec{.carried = carried,
                 .size = ngrams.size,
                 .width = ngrams.width,
                 .taps = ngrams.taps,
                 .table_parts = ngrams.parts,
                 .end = ngrams.end_id,
                 .norm_eps = config.rms_eps,
                 .multipliers = ngram_multipliers(ngrams.seed, n, ngrams.size, config.vocab),
                 .hash_rows = primes_from(ngrams.rows_min, n * hashes, hashes)};
  int64_t rows = 0;
  for (const int32_t of_hash : spec.hash_rows) rows += of_hash;
  spec.table_rows = round_up(rows, int64_t{ngrams.rows_divisor});
  return spec;
}

}  // namespace

std::vector<uint64_t> ngram_multipliers(int64_t seed, int32_t layer, int32_t count, int32_t vocab) {
  constexpr uint64_t kOfLayer = 10007, kOfPlace = 0x9E3779B97F4A7C15u;
  const uint64_t most = std::numeric_limits<int64_t>::max() / std::max(vocab, 1);
  const uint64_t half = std::max<uint64_t>(most / 2, 1);
  const uint64_t base = static_cast<uint64_t>(seed) + kOfLayer * static_cast<uint64_t>(layer);
  std::vector<uint64_t> multipliers;
  for (int32_t i = 0; i < count; ++i) {
    multipliers.push_back(2 * (split_mix(base + kOfPlace * static_cast<uint64_t>(i + 1)) % half) +
                          1);
  }
  return multipliers;
}

std::vector<int32_t> primes_from(int32_t min, int32_t skipped, int32_t count) {
  std::vector<int32_t> primes;
  for (int32_t value = min; std::ssize(primes) < count; ++value) {
    if (!is_prime(value)) continue;
    if (skipped > 0) {
      --skipped;
    } else {
      primes.push_back(value);
    }
  }
  return primes;
}

// A layer that reads the last few tokens is two here: the first adds what it makes of them to the
// streams, and does nothing else.
DecoderSpec qwen4_spec(const ModelConfig& config) {
  const GemmaConfig& streams = config.mixers.gemma;
  const std::vector<int32_t>& reading = streams.ngrams.layers;
  DecoderSpec spec = qwen35_spec(config);
  spec.output_norm = NormKind::kNone;
  spec.carried = {.norm_eps = config.rms_eps,
                  .streams = streams.streams,
                  .hyper = true,
                  .gate_rank = streams.gate_rank,
                  .tokens = !reading.empty()};
  spec.carried.layers = config.layers + static_cast<int32_t>(reading.size());
  std::vector<DecoderLayerSpec> layers = std::exchange(spec.layers, {});
  for (int32_t i = 0; i < config.layers; ++i) {
    const auto at = std::ranges::find(reading, i);
    if (at != reading.end()) {
      const auto n = static_cast<int32_t>(at - reading.begin());
      spec.layers.push_back({.mixer = ngrams_of(config, spec.carried, n),
                             .feed_forward = NoFeedForwardSpec(),
                             .mixer_reads_x = true,
                             .block = i});
    }
    DecoderLayerSpec& layer = spec.layers.emplace_back(std::move(layers[static_cast<size_t>(i)]));
    layer.pre_norm = NormKind::kNone;
    layer.frame = GatedStreamsSpec{.carried = spec.carried};
    layer.block = i;
    if (auto* const rule = std::get_if<DeltaNetSpec>(&layer.mixer)) {
      rule->sigmoid_gates = config.mixers.delta.sigmoid_gates;
    } else {
      layer.attention().index = index_of(config, spec.ropes.front());
    }
  }
  spec.model.layer_count = spec.carried.layers;
  return spec;
}

HfTensorNames qwen4_hf_names() {
  static const Qwen4HfNames kAll;
  return kAll.names;
}

}  // namespace headrace
