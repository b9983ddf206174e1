#include "ops/ranks/peer_ranks.h"

#include <vector>

#include "ops/ranks/peer_memory.h"

namespace headrace {
namespace {

// Of devices that compute nothing.
class NullRanks final : public PeerRanks {
 public:
  explicit NullRanks(int size) {
    for (int rank = 0; rank < size; ++rank) ranks_.emplace_back(rank, size);
  }
  Communicator& rank(int rank) override { return ranks_[static_cast<size_t>(rank)]; }

 private:
  std::vector<LoneRank> ranks_;
};

}  // namespace

int64_t PeerRanks::bytes(int ranks) { return PeerMemory{ranks}.bytes(); }

Result<std::unique_ptr<PeerRanks>> PeerRanks::create(std::span<Device* const> devices) {
  CHECK(!devices.empty() && std::ssize(devices) <= kPeerRanksMax);
  if (devices.front()->kind() == DeviceKind::kCuda) return create_cuda_peer_ranks(devices);
  CHECK(devices.front()->kind() == DeviceKind::kNull);
  return std::unique_ptr<PeerRanks>(std::make_unique<NullRanks>(static_cast<int>(devices.size())));
}

}  // namespace headrace
