"""Text halves of models that also see, where the library has no class that generates with them: its own text model and a
matrix of outputs behind it. Weights have the names of its memory, which hub_names() spells as files have them."""
import pathlib
import types

import torch
from safetensors.torch import save_file
from torch import nn
from transformers.models.glm4v import configuration_glm4v, modeling_glm4v
from transformers.models.glm4v_moe import configuration_glm4v_moe, modeling_glm4v_moe
from transformers.models.qwen3_vl_moe import configuration_qwen3_vl_moe, modeling_qwen3_vl_moe
from transformers.models.step3p7 import configuration_step3p7, modeling_step3p7

KINDS = {
    "Glm4v": (configuration_glm4v.Glm4vTextConfig, modeling_glm4v.Glm4vTextModel),
    "Glm4vMoe": (configuration_glm4v_moe.Glm4vMoeTextConfig, modeling_glm4v_moe.Glm4vMoeTextModel),
    "Qwen3VLMoe": (configuration_qwen3_vl_moe.Qwen3VLMoeTextConfig, modeling_qwen3_vl_moe.Qwen3VLMoeTextModel),
    "Step3p5": (configuration_step3p7.Step3p7TextConfig, modeling_step3p7.Step3p7TextModel),
}


class TextHalf(nn.Module):
    def __init__(self, kind, config):
        super().__init__()
        self.config = config
        self.model = KINDS[kind][1](config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens, use_cache=False):
        rows = self.model(input_ids=tokens, use_cache=use_cache)[0]
        return types.SimpleNamespace(logits=self.lm_head(rows))

    def save_pretrained(self, folder):
        self.config.save_pretrained(folder)
        save_file({name: value.clone() for name, value in self.state_dict().items()},
                  pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})


def hub_names(kind, weights):
    """Experts as the hub's files have them: of Step 3.5 gates and ups apart, of Qwen 3 VL turned, of GLM each by itself."""
    named = {}
    for name, value in weights.items():
        layer, _, part = name.partition(".mlp.")
        if kind == "Step3p5" and part == "experts.gate_up_proj":
            for half, of_half in zip(("gate", "up"), value.chunk(2, dim=1)):
                named[f"{layer}.moe.{half}_proj.weight"] = of_half.contiguous()
        elif kind == "Step3p5" and part.startswith(("experts.", "gate.", "shared_experts.")):
            hub = {"experts.down_proj": "moe.down_proj.weight", "gate.weight": "moe.gate.weight", "gate.e_score_correction_bias": "moe.router_bias"}
            named[f"{layer}.{hub.get(part, part.replace('shared_experts.', 'share_expert.'))}"] = value
        elif kind == "Qwen3VLMoe" and part.startswith("experts."):
            named[name] = value.transpose(1, 2).contiguous()
        elif kind == "Glm4vMoe" and part.startswith("experts."):
            parts = ("gate_proj", "up_proj") if part == "experts.gate_up_proj" else ("down_proj",)
            for expert, matrix in enumerate(value):
                for own, of_part in zip(parts, matrix.chunk(len(parts))):
                    named[f"{layer}.mlp.experts.{expert}.{own}.weight"] = of_part.contiguous()
        else:
            named[name] = value
    return named


def step_of_the_hub(config, weights):
    """Step 3.5's own spelling: lists with an entry for each layer and for one that drafts, whose tensors nobody reads."""
    layers, types_of, kinds = config["num_hidden_layers"], config["layer_types"], config.pop("rope_parameters")
    full, sliding = kinds["full_attention"], kinds["sliding_attention"]
    of_layers = [full if kind == "full_attention" else sliding for kind in [*types_of, "sliding_attention"]]
    config["rope_theta"] = [each["rope_theta"] for each in of_layers]
    config["partial_rotary_factors"] = [each["partial_rotary_factor"] for each in of_layers]
    config["rope_scaling"] = {key: value for key, value in full.items() if key not in ("rope_theta", "partial_rotary_factor")}
    config["layer_types"] = [*types_of, "sliding_attention"]
    config["moe_layers_enum"] = ",".join(str(i) for i, kind in enumerate(config.pop("mlp_layer_types")) if kind == "sparse")
    config["attention_other_setting"] = {"attention_type": "sliding_attention", "num_attention_heads": config.pop("num_sliding_attention_heads"),
                                         "num_attention_groups": config["num_key_value_heads"], "head_dim": config["head_dim"], "true_head_dim": config["head_dim"]}
    for name in ("swiglu_limits", "swiglu_limits_shared"):
        config[name] = [*config[name], 0.0]
    for name, hub in (("n_routed_experts", "moe_num_experts"), ("num_experts_per_tok", "moe_top_k"), ("num_key_value_heads", "num_attention_groups")):
        config[hub] = config.pop(name)
    for name in ("per_layer_config", "query_pre_attn_scalar"):
        config.pop(name)
    config.update(architectures=["Step3p5ForCausalLM"], num_nextn_predict_layers=1, yarn_only_types=["full_attention"], zero_centered=True, use_qk_norm=False,
                  norm_expert_weight=True, moe_router_activation="sigmoid", use_moe_router_bias=True, use_head_wise_attn_gate=True, need_fp32_gate=True, use_rope_layers=[])
    return config, {**weights, f"model.layers.{layers}.eh_proj.weight": torch.zeros(2, 2), f"model.layers.{layers}.self_attn.q_proj.weight": torch.zeros(2, 2)}
