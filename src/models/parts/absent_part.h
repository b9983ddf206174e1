// What stands in a layer that has no mixer, or no feed-forward network (Mamba; Nemotron-H): it
// reads nothing and is not run. Of a token it keeps what another layer's mixer says
// (Mixer::pages_beside()), or nothing.
#pragma once

#include <memory>

#include "models/parts/layer_part.h"

namespace headrace {

struct NoMixerSpec {
  LayerKv kept = {};
};
struct NoFeedForwardSpec {};

template <class Part>
class AbsentPart : public Part {
 public:
  Status split(const ShardSpec& /*shard*/) override { return ok_status(); }
  Status load(LayerTensors&) override { return ok_status(); }
  std::vector<LinearWeight*> matrices() override { return {}; }
  std::vector<int64_t> scratch_columns(bool /*in_place*/) const override { return {}; }
  int64_t op_workspace_bytes(const PartLoad&) const override { return 0; }
};

class AbsentMixer final : public AbsentPart<Mixer> {
 public:
  explicit AbsentMixer(const NoMixerSpec& spec) : spec_(spec) {}
  LayerKv kept() const override { return spec_.kept; }
  void run(const MixerRun&) const override { CHECK_MSG(false, "the layer has no mixer"); }

 private:
  const NoMixerSpec spec_;
};

class AbsentFeedForward final : public AbsentPart<FeedForward> {
 public:
  void run(const FeedForwardRun&) const override { CHECK_MSG(false, "the layer has no network"); }
};

inline std::unique_ptr<Mixer> make_part(const NoMixerSpec& spec, int64_t /*hidden*/) {
  return std::make_unique<AbsentMixer>(spec);
}
inline std::unique_ptr<FeedForward> make_part(const NoFeedForwardSpec&, int64_t /*hidden*/) {
  return std::make_unique<AbsentFeedForward>();
}

}  // namespace headrace
