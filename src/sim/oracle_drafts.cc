#include "sim/oracle_drafts.h"

#include "base/rng.h"

namespace headrace {

void OracleDrafts::propose(Sequence& sequence, int32_t most, std::vector<TokenId>& proposed) {
  const Request& request = *sequence.request;
  OracleChain chain(request, sequence.known_tokens());
  Rng rng(mix64(seed_ ^ mix64(static_cast<uint64_t>(sequence.id.value))) ^
          static_cast<uint64_t>(sequence.known_length()));
  const int64_t count = rng.between(0, most);
  for (int64_t i = 0; i < count; ++i) {
    TokenId token = chain.next_token(model_, request.sampling.seed.value_or(0), sequence.choice);
    if (rng.uniform() >= right_) token = (token + 1) % model_.vocab_size;
    proposed.push_back(token);
    chain.append(token);
  }
}

}  // namespace headrace
