// The parts that a layer can have. A part is its spec (plain data), a function make_part() that
// makes it of its spec, and a row here.
#pragma once

#include <memory>
#include <variant>

#include "models/parts/absent_part.h"
#include "models/parts/altup_frame.h"
#include "models/parts/attention_mixer.h"
#include "models/parts/channel_mix_mixer.h"
#include "models/parts/compressed_attention_mixer.h"
#include "models/parts/delta_net_mixer.h"
#include "models/parts/dense_feed_forward.h"
#include "models/parts/gated_streams_frame.h"
#include "models/parts/hyper_frame.h"
#include "models/parts/kimi_delta_mixer.h"
#include "models/parts/latent_attention_mixer.h"
#include "models/parts/lightning_mixer.h"
#include "models/parts/mamba2_mixer.h"
#include "models/parts/mamba_mixer.h"
#include "models/parts/mixture_feed_forward.h"
#include "models/parts/ngram_mixer.h"
#include "models/parts/normed_rows_frame.h"
#include "models/parts/normed_sum_feed_forward.h"
#include "models/parts/parallel_mixer.h"
#include "models/parts/rg_lru_mixer.h"
#include "models/parts/shared_block_mixer.h"
#include "models/parts/short_conv_mixer.h"
#include "models/parts/time_mix_mixer.h"
#include "models/parts/token_input_frame.h"

namespace headrace {

using MixerSpec = std::variant<  //
    AttentionSpec,               //
    ChannelMixSpec,              //
    CompressedAttentionSpec,     //
    DeltaNetSpec,                //
    KimiDeltaSpec,               //
    LatentAttentionSpec,         //
    LightningSpec,               //
    Mamba2Spec,                  //
    MambaSpec,                   //
    NgramSpec,                   //
    NoMixerSpec,                 //
    ParallelMixerSpec,           //
    RgLruSpec,                   //
    SharedBlockSpec,             //
    ShortConvSpec,               //
    TimeMixSpec>;
using FeedForwardSpec = std::variant<  //
    DenseSpec,                         //
    MixtureSpec,                       //
    NoFeedForwardSpec,                 //
    NormedSumSpec>;
// The first: the layer does nothing around its parts.
struct NoFrameSpec {};
using FrameSpec = std::variant<  //
    NoFrameSpec,                 //
    AltUpSpec,                   //
    GatedStreamsSpec,            //
    HyperSpec,                   //
    NormedRowsSpec,              //
    TokenInputSpec>;
inline std::unique_ptr<LayerFrame> make_frame(const NoFrameSpec&, int64_t /*hidden*/) {
  return nullptr;
}

// `hidden`: the width of the model's rows.
template <class Spec>
auto make_any_part(const Spec& spec, int64_t hidden) {
  return std::visit([&](const auto& of_kind) { return make_part(of_kind, hidden); }, spec);
}

}  // namespace headrace
