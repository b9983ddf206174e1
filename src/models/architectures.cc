#include <array>

#include <fmt/format.h>

#include "models/afmoe.h"
#include "models/apertus.h"
#include "models/bitnet.h"
#include "models/bloom.h"
#include "models/cohere.h"
#include "models/cwm.h"
#include "models/dbrx.h"
#include "models/decoder.h"
#include "models/deepseek.h"
#include "models/deepseek4.h"
#include "models/dots1.h"
#include "models/ernie.h"
#include "models/exaone4.h"
#include "models/falcon.h"
#include "models/flint.h"
#include "models/gemma.h"
#include "models/gemma4.h"
#include "models/glm.h"
#include "models/gpt2.h"
#include "models/gpt_j.h"
#include "models/gpt_neox.h"
#include "models/gpt_oss.h"
#include "models/granite_swa.h"
#include "models/hunyuan.h"
#include "models/hy_v4.h"
#include "models/hyperclova.h"
#include "models/inkling.h"
#include "models/kimi_linear.h"
#include "models/laguna.h"
#include "models/lfm2.h"
#include "models/llama4.h"
#include "models/longcat.h"
#include "models/mamba.h"
#include "models/mimo2.h"
#include "models/minimax.h"
#include "models/model.h"
#include "models/nemotron.h"
#include "models/olmo2.h"
#include "models/olmoe.h"
#include "models/opt.h"
#include "models/phi.h"
#include "models/qwen.h"
#include "models/qwen35.h"
#include "models/qwen4.h"
#include "models/recurrent_gemma.h"
#include "models/rwkv7.h"
#include "models/seed_oss.h"
#include "models/smollm3.h"
#include "models/stablelm.h"
#include "models/starcoder2.h"
#include "models/step.h"
#include "models/zamba2.h"

namespace headrace {
namespace {

using MakeSpec = DecoderSpec (*)(const ModelConfig&);

// A row for an architecture that a DecoderSpec can say.
template <MakeSpec kMakeSpec>
constexpr Architecture decoder(std::string_view name, HfTensorNames (*hf_names)()) {
  return {.name = name,
          .parse = [](const ModelConfig& config) -> Result<ModelSpec> {
            return model_spec(kMakeSpec(config));
          },
          .tensors = [](const ModelConfig& config) { return decoder_tensors(kMakeSpec(config)); },
          .load =
              [](const ModelConfig& config, const WeightSource& weights, Device& device,
                 const ModelLoadOptions& options) {
                return load_decoder(kMakeSpec(config), weights, device, options);
              },
          .hf_names = hf_names};
}

constexpr std::array kArchitectures = {
    // Llama (Touvron et al., 2023) and its kin, of which a configuration says all: RMSNorm before
    // each part, rotary positions, grouped query attention, gated SiLU feed-forward. Qwen 2 and
    // 2.5 (Yang et al., 2024) have biases on q, k and v; Phi-3 and Phi-4 (Abdin et al., 2024) q,
    // k, v and gate, up in one matrix each; Granite 3 (IBM, 2024) multipliers. Mixtral (Jiang et
    // al., 2024), a "llama" too, and Granite's mixtures have experts in place of the network.
    decoder<uniform_decoder>("llama", llama_hf_names),
    decoder<uniform_decoder>("qwen2", llama_hf_names),
    decoder<uniform_decoder>("phi3", llama_hf_names),
    decoder<uniform_decoder>("granite", llama_hf_names),
    decoder<uniform_decoder>("granitemoe", granite_moe_hf_names),
    // What differs by layer is in a file of its own.
    decoder<qwen3_spec>("qwen3", llama_hf_names),
    decoder<qwen3_spec>("qwen3moe", expert_hf_names),
    decoder<qwen3_spec>("qwen3vlmoe", qwen3_vl_moe_hf_names),
    decoder<qwen2_moe_spec>("qwen2moe", expert_hf_names),
    decoder<dots1_spec>("dots1", expert_hf_names),
    decoder<deepseek_spec>("deepseek2", deepseek_hf_names),
    decoder<deepseek_spec>("deepseek32", deepseek_hf_names),
    decoder<deepseek_spec>("glm-dsa", deepseek_hf_names),
    decoder<deepseek_spec>("mistral4", deepseek_hf_names),
    decoder<longcat_spec>("longcat-flash", longcat_hf_names),
    decoder<kimi_linear_spec>("kimi-linear", kimi_linear_hf_names),
    decoder<ling3_spec>("bailingmoe3", ling3_hf_names),
    decoder<olmoe_spec>("olmoe", expert_hf_names),
    decoder<gemma_spec>("gemma", gemma_hf_names),
    decoder<gemma2_spec>("gemma2", gemma2_hf_names),
    decoder<gemma3_spec>("gemma3", gemma3_hf_names),
    decoder<gemma3n_spec>("gemma3n", gemma4_hf_names),
    decoder<gemma4_spec>("gemma4", gemma4_hf_names),
    decoder<llama4_spec>("llama4", llama4_hf_names),
    decoder<ministral3_spec>("mistral3", ministral3_hf_names),
    decoder<smollm3_spec>("smollm3", llama_hf_names),
    decoder<olmo2_spec>("olmo2", olmo2_hf_names),
    decoder<starcoder2_spec>("starcoder2", starcoder2_hf_names),
    decoder<lfm2_spec>("lfm2", lfm2_hf_names),
    decoder<lfm2_spec>("lfm2moe", lfm2_hf_names),
    decoder<qwen35_spec>("qwen35", qwen35_hf_names),
    decoder<qwen35_spec>("qwen35moe", qwen35_hf_names),
    decoder<qwen35_spec>("qwen3next", qwen35_hf_names),
    decoder<qwen4_spec>("qwen4exp", qwen4_hf_names),
    decoder<seed_oss_spec>("seed_oss", seed_oss_hf_names),
    decoder<exaone4_spec>("exaone4", olmo2_hf_names),
    decoder<uniform_decoder>("ernie4_5", llama_hf_names),
    decoder<ernie4_5_moe_spec>("ernie4_5-moe", ernie4_5_moe_hf_names),
    decoder<uniform_decoder>("helium", llama_hf_names),
    decoder<glm_spec>("chatglm", llama_hf_names),
    decoder<glm4_spec>("glm4", glm4_hf_names),
    decoder<glm4_moe_spec>("glm4moe", glm4_moe_hf_names),
    decoder<minimax_spec>("minimax-01", minimax_hf_names),
    decoder<minimax_m2_spec>("minimax-m2", llama_hf_names),
    decoder<minimax_m3_spec>("minimax-m3", minimax_m3_hf_names),
    decoder<flex_olmo_spec>("flexolmo", flex_olmo_hf_names),
    decoder<cwm_spec>("cwm", llama_hf_names),
    decoder<gpt_oss_spec>("gpt-oss", gpt_oss_hf_names),
    decoder<cohere_spec>("command-r", llama_hf_names),
    decoder<cohere2_spec>("cohere2", llama_hf_names),
    decoder<phi_spec>("phi2", phi_hf_names),
    decoder<gpt_neox_spec>("gptneox", gpt_neox_hf_names),
    decoder<arcee_spec>("arcee", llama_hf_names),
    decoder<nemotron_spec>("nemotron", nemotron_hf_names),
    decoder<nemotron_spec>("jais2", llama_hf_names),
    decoder<stablelm_spec>("stablelm", llama_hf_names),
    decoder<olmo_spec>("olmo", llama_hf_names),
    decoder<vault_gemma_spec>("vaultgemma", gemma2_hf_names),
    decoder<gpt2_spec>("gpt2", gpt2_hf_names),
    decoder<gpt2_spec>("starcoder", gpt_big_code_hf_names),
    decoder<gpt2_spec>("gptneo", gpt_neo_hf_names),
    decoder<gpt_j_spec>("gptj", gpt_j_hf_names),
    decoder<code_gen_spec>("codegen", gpt_j_hf_names),
    decoder<opt_spec>("opt", opt_hf_names),
    decoder<falcon_spec>("falcon", falcon_hf_names),
    decoder<bloom_spec>("bloom", bloom_hf_names),
    decoder<mpt_spec>("mpt", mpt_hf_names),
    decoder<mamba_spec>("mamba", mamba_hf_names),
    decoder<mamba_spec>("mamba2", mamba_hf_names),
    decoder<jamba_spec>("jamba", jamba_hf_names),
    decoder<mamba_hybrid_spec>("granitehybrid", mamba_hybrid_hf_names),
    decoder<mamba_hybrid_spec>("bamba", mamba_hybrid_hf_names),
    decoder<falcon_h1_spec>("falcon-h1", mamba_hybrid_hf_names),
    decoder<zamba2_spec>("zamba2", zamba2_hf_names),
    decoder<nemotron_h_spec>("nemotron_h", mamba_hf_names),
    decoder<nemotron_h_spec>("nemotron_h_moe", mamba_hf_names),
    decoder<rwkv7_spec>("rwkv7", rwkv7_hf_names),
    decoder<apertus_spec>("apertus", apertus_hf_names),
    decoder<inkling_spec>("inkling", inkling_hf_names),
    decoder<hunyuan_spec>("hunyuan-dense", hunyuan_hf_names),
    decoder<hunyuan_spec>("hunyuan-moe", hunyuan_hf_names),
    decoder<hyperclova_spec>("hyperclovax", hyperclova_hf_names),
    decoder<phi_moe_spec>("phimoe", phi_moe_hf_names),
    decoder<exaone_moe_spec>("exaone-moe", expert_hf_names),
    decoder<afmoe_spec>("afmoe", afmoe_hf_names),
    decoder<mellum_spec>("mellum", expert_hf_names),
    decoder<hy_v3_spec>("hy_v3", hy_v3_hf_names),
    decoder<cohere2_moe_spec>("cohere2moe", expert_hf_names),
    decoder<nanochat_spec>("nanochat", phi_hf_names),
    decoder<granite_swa_spec>("granite-swa", granite_swa_hf_names),
    decoder<deepseek_spec>("minicpm3", deepseek_hf_names),
    decoder<biogpt_spec>("biogpt", biogpt_hf_names),
    decoder<gpt_neox_japanese_spec>("gptneox-japanese", gpt_neox_japanese_hf_names),
    decoder<gpt_spec>("openai-gpt", gpt_hf_names),
    decoder<ctrl_spec>("ctrl", ctrl_hf_names),
    decoder<xglm_spec>("xglm", xglm_hf_names),
    decoder<olmo_hybrid_spec>("olmo-hybrid", olmo_hybrid_hf_names),
    decoder<persimmon_spec>("persimmon", persimmon_hf_names),
    decoder<bitnet_spec>("bitnet", bitnet_hf_names),
    decoder<hy_v4_spec>("hy_v4", hy_v4_hf_names),
    decoder<deepseek4_spec>("deepseek4", deepseek4_hf_names),
    decoder<axk1_spec>("axk1", axk1_hf_names),
    decoder<axk2_spec>("axk2", axk2_hf_names),
    decoder<dbrx_spec>("dbrx", dbrx_hf_names),
    decoder<mimo2_spec>("mimo2", mimo2_hf_names),
    decoder<laguna_spec>("laguna", laguna_hf_names),
    decoder<step_spec>("step35", step_hf_names),
    decoder<lfm3_spec>("lfm3", lfm3_hf_names),
    decoder<flint_spec>("flint", flint_hf_names),
    decoder<kolibri_spec>("kolibri1", kolibri_hf_names),
    decoder<glm4_moe_spec>("sarvam-moe", sarvam_moe_hf_names),
    decoder<recurrent_gemma_spec>("recurrentgemma", recurrent_gemma_hf_names),
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

Result<const Architecture*> find_architecture(std::string_view name) {
  std::string known;
  for (const Architecture& architecture : architectures()) {
    if (architecture.name == name) return &architecture;
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return unsupported(fmt::format("architecture \"{}\" is not supported (known: {})", name, known),
                     "general.architecture");
}

}  // namespace headrace
