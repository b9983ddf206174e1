#include "ops/linear/float8.h"

namespace headrace {
namespace {

constexpr int64_t kPieceBytes = 256;  // a workspace's

int64_t whole_pieces(int64_t bytes) {
  return (bytes + kPieceBytes - 1) / kPieceBytes * kPieceBytes;
}

}  // namespace

bool float8_streams(const DeviceTraits& traits, int64_t rows) {
  return traits.batch_invariant || rows <= kFloat8StreamedRowsMax;
}

int64_t float8_rows_bytes(int64_t m, int64_t k) {
  return whole_pieces(m * k) + whole_pieces(m * static_cast<int64_t>(sizeof(float)));
}

int64_t float8_workspace_bytes(int64_t m, const LinearWeight& weight) {
  return float8_rows_bytes(m, weight.k()) + kPieceBytes;
}

}  // namespace headrace
