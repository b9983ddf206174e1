// Families of selective state spaces: Mamba (Gu and Dao, 2023), FalconMamba (TII, 2024) and Mamba-2
// (Dao and Gu, 2024) alone, in which a layer is its mixer, and with attention: Jamba (AI21, 2024),
// Bamba (IBM and others, 2024) and Granite 4 (IBM, 2025) in some layers, Falcon-H1 (Zuo et al.,
// 2025) beside it in all, Nemotron-H (NVIDIA, 2025) in layers that are a mixer or a network.
#pragma once

#include "models/decoder_spec.h"

namespace headrace {

DecoderSpec mamba_spec(const ModelConfig& config);  // Mamba, FalconMamba and Mamba-2
DecoderSpec jamba_spec(const ModelConfig& config);
DecoderSpec mamba_hybrid_spec(const ModelConfig& config);  // Bamba and Granite 4
DecoderSpec falcon_h1_spec(const ModelConfig& config);
DecoderSpec nemotron_h_spec(const ModelConfig& config);
HfTensorNames mamba_hf_names();  // Nemotron-H's, too
HfTensorNames mamba_hybrid_hf_names();
HfTensorNames jamba_hf_names();
// Of Zamba 2's layers, whose norm has an eps of its own.
Mamba2Spec zamba2_mamba(const ModelConfig& config);

}  // namespace headrace
