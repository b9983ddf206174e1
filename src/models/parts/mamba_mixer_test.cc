// (What it computes: ops/states/selective_scan_test.cc, and models/tiny_models_test.cc against
// transformers.)
#include "models/parts/mamba_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"
#include "models/parts/part_fixture.h"

namespace headrace::mamba_mixer_test {
namespace {

constexpr int32_t kRows = 60;

// Of each kind of norms, as Mamba2Mixer's test of this name.
TEST(MambaMixer, RunsInADecoder) {
  const DecoderSpec spec = uniform_decoder(tiny_config());
  const auto device = create_cpu_device(2);
  std::vector<SequenceValues> answers = {MadeModel(spec, *device).run({kRows})};
  for (const ScanNorms norms : {ScanNorms::kNone, ScanNorms::kBare, ScanNorms::kWeights}) {
    DecoderSpec mixed = spec;
    mixed.layers[1].mixer =
        MambaSpec{.inner = 40, .state_dim = 7, .dt_rank = 3, .norms = norms, .norm_eps = 1e-5f};
    const MadeModel made(mixed, *device);
    const SequenceValues whole = made.run({kRows});
    for (const SequenceValues& other : answers) EXPECT_NE(whole.logits, other.logits);
    answers.push_back(whole);
    for (const auto& steps :
         {std::vector<int32_t>{7, 16, 1, 1, 20, 15}, std::vector<int32_t>(kRows, 1)}) {
      EXPECT_EQ(made.run(steps).logits, whole.logits);
    }
    EXPECT_EQ(made.run({50, 10}, /*read_last=*/1).logits,
              (std::vector{whole.logits[49], whole.logits[59]}));
  }
}

}  // namespace
}  // namespace headrace::mamba_mixer_test
