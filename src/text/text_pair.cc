#include "text/text_pair.h"

#include <algorithm>

namespace headrace {

PairLengths longest_first(PairLengths lengths, size_t most) {
  if (lengths.first + lengths.second <= most) return lengths;
  const size_t shorter = std::min(lengths.first, lengths.second);
  PairLengths kept;  // the shorter text's is `first`
  if (2 * shorter <= most) {
    kept = {shorter, most - shorter};
  } else {
    kept = {most / 2, most / 2 + most % 2};
  }
  return lengths.first > lengths.second ? PairLengths{kept.second, kept.first} : kept;
}

std::vector<TokenId> join_pair(const PairFrame& frame, TokenSpan first, TokenSpan second) {
  std::vector<TokenId> ids;
  ids.reserve(frame.size() + first.size() + second.size());
  for (const TokenSpan part :
       {TokenSpan(frame.front), first, TokenSpan(frame.middle), second, TokenSpan(frame.back)}) {
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

}  // namespace headrace
