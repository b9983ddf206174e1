// Qwen 4 Exp (Qwen Team, 2026): Qwen 3.5's mixtures in which rows lie in several streams beside
// each other, which gates join and part; attention goes to blocks of keys that an index chooses,
// and some layers add embeddings of the last few tokens.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec qwen4_spec(const ModelConfig& config);
HfTensorNames qwen4_hf_names();

// What the tokens of the last few are multiplied by where layer `layer` of those that read them
// hashes them: odd numbers, of which no product with a token below `vocab` is 2^63 or more.
std::vector<uint64_t> ngram_multipliers(int64_t seed, int32_t layer, int32_t count, int32_t vocab);
// The primes from `min` on, but for the first `skipped`.
std::vector<int32_t> primes_from(int32_t min, int32_t skipped, int32_t count);

}  // namespace headrace
