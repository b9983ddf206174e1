// A mixture of experts (Shazeer et al., 2017): gated networks of which a router chooses a few for
// each row, y = sum over its experts e of w_e(x) down_e(act(gate_e(x)) * up_e(x)), and perhaps a
// shared one that every row takes (DeepSeekMoE; Dai et al., 2024). A CPU multiplies network by
// network, a GPU all of them at once (expert_bank.h).
#pragma once

#include <memory>
#include <string>

#include "models/parts/gate_limits.h"
#include "models/parts/layer_part.h"
#include "models/parts/token_experts.h"
#include "ops/rows/activation.h"
#include "ops/rows/route_experts.h"

namespace headrace {

struct MixtureSpec {
  RouterRule router;
  int32_t width = 0;  // of each expert
  // The last so many of the router's experts have no network: each gives back the row that it reads
  // (Jin et al., 2024; LongCat-Flash). There is no shared one then.
  int32_t identities = 0;
  // The last so many of the router's experts are among those of every row (Inkling): `used` counts
  // them. Their tensors are stacks of their own, ffn_*_shexps.
  int32_t scored_shared = 0;
  int32_t shared_width = 0;   // of the shared one, where the router has it
  TokenExpertsSpec by_token;  // in place of a choice
  bool choice_bias = false;   // added to scores for the choice alone
  const char* choice_bias_name = "exp_probs_b.bias";
  bool choice_bias_may_lack = false;  // files without it have zeros (A.X-K1)
  Activation activation = Activation::kSilu;
  bool router_bias = false;   // ffn_gate_inp has a bias, which is of the weights, too
  bool bias = false;          // experts have
  bool fused = false;         // gates and ups lie in one tensor, ffn_gate_up_exps
  bool scaled = false;        // ffn_down_exps.scale: of what each expert makes
  bool scales_input = false;  // weights are of the rows that an expert reads (Llama 4)
  GateLimits limits;          // of experts but the shared one
  GateLimits shared_limits;   // of that
  ClampedSwishShape swish;    // of Activation::kClampedSwish, in all networks
  bool gated = true;          // false: a network is down(act(up(x))), and has no gate (Nemotron-H)

  int32_t computing() const { return router.experts - identities; }  // experts that have networks
  int32_t up_parts() const { return gated ? 2 : 1; }  // of the columns of a network's first product
};

// So many rows of an expert's matrix of a stack, "ffn_up" or its kin. REQUIRES: it has networks
inline MatrixStack::Rows rows_of_expert(const MixtureSpec& spec, const std::string& stem,
                                        int32_t expert, int64_t rows) {
  const int32_t chosen = spec.computing() - spec.scored_shared;
  const bool shared = expert >= chosen;
  MatrixStack::Rows each{stem + (shared ? "_shexps" : "_exps"), rows};
  each.experts = shared ? spec.scored_shared : chosen;
  each.expert = shared ? expert - chosen : expert;
  return each;
}

std::unique_ptr<FeedForward> make_part(const MixtureSpec& spec, int64_t hidden);

}  // namespace headrace
