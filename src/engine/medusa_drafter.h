// MedusaDrafter: the top token of each of a model's Medusa heads, as a chain. They all read the
// hidden row of the last token but one, which the step before has computed: what the model's own
// head said of it is known. No head sees what another proposes.
#pragma once

#include <memory>
#include <span>

#include "engine/drafter.h"

namespace headrace {

class MedusaDrafter final : public Drafter {
 public:
  static int64_t pass_bytes(Device& device, const ModelRunnerOptions& options);
  // REQUIRES: options.draft_head->medusa. Else as of Drafter
  static Result<std::unique_ptr<Drafter>> create(Device& device, const Model& model,
                                                 const ModelRunnerOptions& options);

 private:
  MedusaDrafter(Device& device, const Model& model, const ModelRunnerOptions& options)
      : Drafter(device, model, options), stream_(device.create_stream()) {}

  void draft(const SlotTable& slots, Sampler& sampler) override;
  TensorView logits(std::span<const LogitRow> rows) override;
  OpContext context() override { return {device_, *stream_, workspace_, mesh_, options_.hooks}; }
  const MedusaHeads& heads() const { return *options_.draft_head->medusa; }

  const std::unique_ptr<Stream> stream_;
  SingleRank no_others_;
  Mesh mesh_{&no_others_, &no_others_, &no_others_};
  Workspace workspace_;
  Buffer rows_;       // [max_num_seqs, D]
  TensorView row_;    // of each draft, in their order
  int32_t head_ = 0;  // that is asked
};

}  // namespace headrace
