#!/usr/bin/env python3
"""Makes the tiny models of tests/data/models whose weights are quantised as the hub's are, by the formats' own
tools, and what transformers computes with the weights that those tools dequantise in fp32: more models for
src/models/tiny_models_test.cc, and tests/data/weights/hub_fixture.json, hashes of the dequantised matrices for
src/weights/hub_matrix_test.cc. Run once by hand, its output is committed:

    pip install torch==2.15.0 transformers==5.24.0 compressed-tensors==0.20.0 gguf datasets pillow
    pip install threadpoolctl torchao zstandard pypcre logbar device_smi tokenicer defuser random_word
    pip install --no-deps autoawq==0.2.9 gptqmodel==7.7.0
    python3 tests/models/make_quantised_models.py tests/data
"""
import json
import pathlib
import shutil
import sys

import torch
import transformers
from awq.modules.linear.gemm import WQLinear_GEMM
from awq.utils.packing_utils import dequantize_gemm
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module
from safetensors.torch import load_file, save_file
from transformers.integrations.bitnet import pack_weights

from make_tiny_models import DEEPSEEK3, expected_values, make_model

SIZES = dict(hidden_size=64, intermediate_size=96, head_dim=16)
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "q_a_proj", "q_b_proj",
          "kv_a_proj_with_mqa", "kv_b_proj")
DENSE = dict(hidden_size=32, intermediate_size=48)  # beside DEEPSEEK3


def integers(weight, bits, group, symmetric):
    """Scales and unsigned zero points, [rows, groups]: nearest rounding's."""
    groups = weight.reshape(weight.shape[0], -1, group)
    top = 2 ** bits - 1
    if symmetric:
        scale = groups.abs().amax(-1) * 2 / top
        return scale, torch.full_like(scale, 2 ** (bits - 1))
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scale = (high - low) / top
    return scale, torch.round(-low / scale).clamp(0, top)


# ---- a matrix in each format: its tensors, and what they stand for in fp32 [rows, columns] ----


def gptq(linear, seed, bits=4, group=32, symmetric=True, shuffled=False, version=1):
    weight = linear.weight.data
    rows, columns = weight.shape
    order = torch.arange(columns, dtype=torch.int32) // group
    if shuffled:
        order = order[torch.randperm(columns, generator=torch.Generator().manual_seed(seed))]
    sorted_columns = torch.argsort(order.long(), stable=True)
    scale, zero = integers(weight[:, sorted_columns], bits, group, symmetric)
    scale = scale.half().float()
    packed = TorchLinear(bits=bits, group_size=group, sym=symmetric, desc_act=shuffled, in_features=columns,
                         out_features=rows, bias=False)
    plain = torch.nn.Linear(columns, rows, bias=False)
    plain.weight.data = weight
    packed.pack_original(plain, scale, zero, order)
    packed.post_init()
    packed.scales = packed.scales.float()
    dequantised = packed.eval().dequantize_weight().T.float().contiguous()
    packed.scales = packed.scales.half()
    if version == 1:
        convert_gptq_v2_to_v1_format_module(packed, type("Config", (), {"bits": bits, "pack_dtype": torch.int32,
                                                                        "planar": False, "format": None})())
    return {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales,
            "g_idx": packed.g_idx.to(torch.int32)}, dequantised


def awq(linear, _seed, group=32):
    plain = torch.nn.Linear(linear.in_features, linear.out_features, bias=False)
    plain.weight.data = linear.weight.data
    scale, zero = integers(plain.weight.data, 4, group, False)
    scale = scale.half().float()
    # What lies on the steps alone: the packer does not clamp.
    groups = plain.weight.data.reshape(plain.out_features, -1, group)
    quants = (torch.round(groups / scale[..., None]) + zero[..., None]).clamp(0, 15)
    plain.weight.data = ((quants - zero[..., None]) * scale[..., None]).reshape(plain.weight.shape)
    packed = WQLinear_GEMM.from_linear(plain, 4, group, scales=scale.T.contiguous(), zeros=zero.T.contiguous())
    dequantised = dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4, group)
    return {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales}, dequantised.T.contiguous()


def compressed(linear, _seed, form, scale_type=torch.bfloat16, **scheme):
    """compressed-tensors' compressor of a format, scales and zero points by nearest rounding."""
    args = QuantizationArgs(**scheme)
    weight = linear.weight.data
    rows, columns = weight.shape
    state = {"weight": weight.to(scale_type)}
    if args.type == "float":
        block = args.block_structure or ((1, columns) if args.strategy == "channel" else (rows, columns))
        tiles = weight.reshape(rows // block[0], block[0], columns // block[1], block[1])
        scale = tiles.abs().amax((1, 3)) / 448
        state["weight_scale"] = scale.to(scale_type) if args.strategy != "tensor" else scale.reshape(1).to(scale_type)
    else:
        scale, zero = integers(weight, args.num_bits, args.group_size or columns, args.symmetric)
        state["weight_scale"] = scale.to(scale_type)
        if not args.symmetric:
            state["weight_zero_point"] = (zero - 2 ** (args.num_bits - 1)).to(torch.int8)
    compressor = BaseCompressor.get_value_from_registry(form)
    whole = QuantizationScheme(targets=["Linear"], weights=args)
    tensors = compressor.compress(state, whole)
    wide = dict(tensors)
    wide["weight_scale"] = wide["weight_scale"].float()
    return tensors, compressor.decompress(wide, whole)["weight"].float()


def deepseek(linear, _seed, block=32):
    """As DeepSeek's weight_dequant has it: tiles of e4m3, weight_scale_inv multiplied."""
    weight = linear.weight.data
    rows, columns = weight.shape
    tiles = [(rows + block - 1) // block, (columns + block - 1) // block]
    scale, quants = torch.zeros(tiles), torch.zeros_like(weight)
    for i in range(tiles[0]):
        for j in range(tiles[1]):
            at = slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block)
            scale[i, j] = weight[at].abs().max() / 448
            quants[at] = weight[at] / scale[i, j]
    quants = quants.to(torch.float8_e4m3fn)
    wide = scale.repeat_interleave(block, 0).repeat_interleave(block, 1)[:rows, :columns]
    return {"weight": quants, "weight_scale_inv": scale}, quants.float() * wide


def ternary(linear, _seed):
    """As BitNet's files: nearest of -1, 0, 1 times the mean of sizes, four rows in one of bytes."""
    weight = linear.weight.data
    scale = weight.abs().mean().to(torch.bfloat16)
    quants = (weight / scale.float()).round().clamp(-1, 1) + 0.0  # which is no -0
    return {"weight": pack_weights(quants.clone()), "weight_scale": scale.reshape(1)}, quants * scale.float()


# ---- models ----

INT4 = dict(num_bits=4, type="int", strategy="group", group_size=32)
CHANNEL8 = dict(num_bits=8, type="int", strategy="channel", symmetric=True)
FLOAT8 = dict(num_bits=8, type="float", symmetric=True)


def mixed(layer, name):
    """Another scheme for each kind of matrix."""
    if name in ("q_proj", "k_proj", "v_proj"):
        return "pack-quantized", dict(**INT4, symmetric=layer == 0)
    if name == "o_proj":
        return "pack-quantized", CHANNEL8
    if name == "down_proj":
        return "naive-quantized", CHANNEL8
    if layer == 0:
        return "naive-quantized", dict(**FLOAT8, strategy="channel")
    return "naive-quantized", dict(**FLOAT8, strategy="tensor")


MODELS = {
    # name: class, options, the method of a matrix, quantization_config
    "qwen2-gptq": ("Qwen2", dict(tie_word_embeddings=True),
                   lambda layer, name, linear, seed: gptq(linear, seed, shuffled=layer == 1),
                   dict(quant_method="gptq", bits=4, group_size=32, desc_act=True, sym=True,
                        checkpoint_format="gptq")),
    "llama-gptq8": ("Llama", dict(tie_word_embeddings=True),
                    lambda layer, name, linear, seed: gptq(linear, seed, bits=8, version=2, symmetric=name != "o_proj")
                    if layer == 0 else gptq(linear, seed, symmetric=False, version=2),
                    dict(quant_method="gptq", bits=8, group_size=32, desc_act=False, sym=False,
                         checkpoint_format="gptq_v2")),
    "qwen3-awq": ("Qwen3", dict(tie_word_embeddings=True),
                  lambda layer, name, linear, seed: awq(linear, seed) if (layer, name) != (1, "o_proj") else None,
                  dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm",
                       modules_to_not_convert=["model.layers.1.self_attn.o_proj"])),
    "llama-compressed": ("Llama", dict(tie_word_embeddings=True),
                         lambda layer, name, linear, seed: compressed(linear, seed, mixed(layer, name)[0],
                                                                      **mixed(layer, name)[1]),
                         dict(quant_method="compressed-tensors", format="mixed-precision", ignore=["lm_head"],
                              quantization_status="compressed", config_groups={"group_0": dict(
                                  targets=["Linear"], weights=dict(**INT4, symmetric=False))})),
    "deepseek3-fp8": ("DeepseekV3", {**DEEPSEEK3, **DENSE, "num_hidden_layers": 2},
                      lambda layer, name, linear, seed: deepseek(linear, seed),
                  dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[32, 32])),
    # Rows of which a block of 256 columns is one, and shorter ones.
    "bitnet-ternary": ("BitNet", dict(hidden_size=256, intermediate_size=96, num_hidden_layers=1, tie_word_embeddings=True),
                       lambda layer, name, linear, seed: ternary(linear, seed),
                       dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode="offline")),
}


def fnv1a(values):
    result = 0xcbf29ce484222325
    for byte in values.contiguous().numpy().tobytes():
        result = (result ^ byte) * 0x100000001b3 % (1 << 64)
    return f"{result:016x}"


def write_model(root, name, seed):
    kind, options, quantise, config = MODELS[name]
    sizes = options if "hidden_size" in options else {**SIZES, **options}
    folder = root / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    make_model(kind, sizes, torch.bfloat16, seed).save_pretrained(folder)
    hashes, tensors, wide = {}, {}, {}
    for key, value in load_file(folder / "model.safetensors").items():
        tensors[key], wide[key] = value.to(torch.bfloat16), value.float()
        module = key.removesuffix(".weight")
        if not module.endswith(LINEAR):
            continue
        linear = torch.nn.Linear(value.shape[1], value.shape[0], bias=False)
        linear.weight.data = value.float()
        layer = int(module.split(".")[2])
        made = quantise(layer, module.split(".")[-1], linear, seed + layer)
        if made is None:
            continue
        del tensors[key]
        tensors.update({f"{module}.{part}": of_part.contiguous() for part, of_part in made[0].items()})
        assert made[1].shape == value.shape
        assert (made[1] - value).abs().max() < (0.7 if name == "bitnet-ternary" else 0.3), module
        hashes[module] = fnv1a(made[1])
        wide[key] = made[1]
    save_file(wide, folder / "model.safetensors", metadata={"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    (folder / "generation_config.json").unlink(missing_ok=True)
    written = json.loads((folder / "config.json").read_text())
    for key in ("transformers_version", "_name_or_path", "dtype"):
        written.pop(key, None)
    written["quantization_config"] = config
    (folder / "config.json").write_text(json.dumps(written, indent=1) + "\n")
    (folder / "model.safetensors").unlink()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(expected_values(model, seed), root / "models" / f"{name}.expected.safetensors")
    return hashes


def main():
    root = pathlib.Path(sys.argv[1])
    torch.set_grad_enabled(False)
    fixture = {name: write_model(root, name, 500 + i) for i, name in enumerate(MODELS)}
    (root / "weights" / "hub_fixture.json").write_text(json.dumps(fixture, indent=1) + "\n")


main()
