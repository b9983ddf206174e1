#include "models/decoder_weights.h"

#include <future>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "tensor/quantised_row.h"
#include "tensor/uploader.h"

namespace headrace {
namespace {

Result<Buffer> upload(Device& device, std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  HR_ASSIGN_OR_RETURN(Buffer buffer, device.allocate(size));
  const auto stream = device.create_stream();
  stream->copy_in(buffer.data(), bytes.data(), size);
  HR_RETURN_IF_ERROR(stream->synchronize());
  return buffer;
}

// Files of some architectures hold the rows of q and k in the order (pair, half) of the original
// interleaved rotation; ours, as HF's, is (half, pair). Row r of a head comes from file row:
std::vector<int32_t> half_from_interleaved(int32_t heads, int32_t head_dim) {
  std::vector<int32_t> order;
  order.reserve(static_cast<size_t>(heads) * static_cast<size_t>(head_dim));
  const int32_t half = head_dim / 2;
  for (int32_t head = 0; head < heads; ++head) {
    for (int32_t r = 0; r < head_dim; ++r) {
      order.push_back(head * head_dim + 2 * (r % half) + r / half);
    }
  }
  return order;
}

// What on-load quantisation makes of a matrix. The head chooses tokens, so that 4 bits show there
// most: it gets 8 (llama.cpp's quantiser gives it 6 or 8). Rows that are no whole blocks of Q4_K
// become Q4_1, which has its precision at 5 bits instead of 4.5; rows of no whole blocks at all
// stay.
std::optional<DType> quantised_type(DType wanted, bool head, int64_t columns) {
  DType dtype = head ? DType::kQ8_0 : wanted;
  if (!row_bytes(dtype, columns)) dtype = DType::kQ4_1;
  return row_bytes(dtype, columns) ? std::optional(dtype) : std::nullopt;
}

class DecoderLoader {
 public:
  DecoderLoader(const DecoderSpec& spec, const WeightSource& source, Device& device,
                const ModelLoadOptions& options)
      : spec_(spec), source_(source), device_(device), options_(options) {}

  Result<DecoderWeights> load() {
    std::future<Status> library;
    if (device_.kind() == DeviceKind::kCuda) {
      uploader_.emplace(device_, device_.pool().thread_count());
      library = std::async(std::launch::async, [&] { return open_library(); });
    }
    HR_RETURN_IF_ERROR(load_tensors());
    Timeline::Span wait(options_.timeline, "last weights arrive");
    if (uploader_) HR_RETURN_IF_ERROR(uploader_->finish());
    if (library.valid()) HR_RETURN_IF_ERROR(library.get());
    return std::move(weights_);
  }

 private:
  // What will multiply the matrices takes its time to start: meanwhile they are read.
  Status open_library() const {
    const Timeline::Span span(options_.timeline, "cuBLASLt");
    return device_.gemm_library().status();
  }

  Status load_tensors() {
    const Timeline::Span span(options_.timeline, "weights");
    for (const RopeTable& table : spec_.ropes) HR_RETURN_IF_ERROR(load_rope(table));
    for (int32_t i = 0; i < spec_.model.layer_count; ++i) {
      HR_RETURN_IF_ERROR(load_layer(i));
      report(static_cast<double>(i + 1) / (spec_.model.layer_count + 1));
    }
    HR_ASSIGN_OR_RETURN(weights_.output_norm,
                        norm("output_norm", spec_.output_norm, spec_.logit_scale));
    const char* output = spec_.tied_embeddings ? "token_embd.weight" : "output.weight";
    HR_ASSIGN_OR_RETURN(weights_.output, matrix({{output, table_shape(), {}}}));
    // Last: packing a tied head gives the table back to its source.
    HR_RETURN_IF_ERROR(load_embedding());
    report(1.0);
    return reserve_unpacked();
  }

  Status reserve_unpacked() {
    Status status;
    for_each_matrix(weights_, [&](LinearWeight& weight) {
      if (!weight.is_packed() && status.ok()) status = weight.reserve();
    });
    return status;
  }

  // Rows of one tensor in a stack; a bias has its rows in the same order.
  struct Part {
    std::string name;  // without ".weight"
    int64_t rows;
    std::span<const int32_t> row_order;
  };
  struct MatrixPart {
    std::string name;
    Shape shape;
    std::span<const int32_t> row_order;
  };

  void report(double done) const {
    if (options_.progress) options_.progress(done);
  }
  Shape table_shape() const { return {spec_.model.vocab_size, spec_.model.hidden_size}; }

  Status load_rope(const RopeTable& table) {
    RopeWeights rope{.count = static_cast<int64_t>(table.inv_freq.size()), .scale = table.scale};
    std::vector<double> inv_freq = table.inv_freq;
    if (!table.divisors.empty()) {
      HR_ASSIGN_OR_RETURN(const std::vector<float> divisors,
                          host_vector(table.divisors, rope.count));
      for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] /= divisors[i];
    }
    HR_ASSIGN_OR_RETURN(rope.inv_freq, upload(device_, std::as_bytes(std::span(inv_freq))));
    weights_.ropes.push_back(std::move(rope));
    return ok_status();
  }

  Status load_layer(int32_t index) {
    const DecoderLayerSpec& spec = spec_.layers[static_cast<size_t>(index)];
    const auto name = [&](std::string_view part) { return fmt::format("blk.{}.{}", index, part); };
    const int64_t hidden = spec_.model.hidden_size;
    const int64_t q = int64_t{spec.heads} * spec.head_dim;
    DecoderLayer& layer = weights_.layers.emplace_back(DecoderLayer{.spec = spec});
    HR_ASSIGN_OR_RETURN(layer.attention_norm, norm(name("attn_norm"), spec.pre_norm));
    HR_ASSIGN_OR_RETURN(layer.qkv, linear(qkv_parts(index), hidden, spec.qkv_bias));
    HR_RETURN_IF_ERROR(load_qk_norms(index, layer));
    HR_ASSIGN_OR_RETURN(layer.attention_out,
                        linear({{name("attn_output"), hidden, {}}}, q, spec.attention_out_bias));
    HR_ASSIGN_OR_RETURN(layer.attention_post_norm,
                        norm(name("post_attention_norm"), spec.post_norm));
    HR_ASSIGN_OR_RETURN(layer.ffn_norm, norm(name("ffn_norm"), spec.pre_norm));
    HR_ASSIGN_OR_RETURN(layer.gate_up, linear(gate_up_parts(index), hidden, spec.ffn_bias));
    HR_ASSIGN_OR_RETURN(layer.down,
                        linear({{name("ffn_down"), hidden, {}}}, spec.ffn, spec.ffn_bias));
    HR_ASSIGN_OR_RETURN(layer.ffn_post_norm, norm(name("post_ffw_norm"), spec.post_norm));
    return ok_status();
  }

  std::vector<Part> qkv_parts(int32_t index) {
    const DecoderLayerSpec& spec = spec_.layers[static_cast<size_t>(index)];
    const int64_t q = int64_t{spec.heads} * spec.head_dim;
    const int64_t kv = int64_t{spec.kv_heads} * spec.head_dim;
    if (spec_.qk_rows_interleaved) {
      q_order_ = half_from_interleaved(spec.heads, spec.head_dim);
      k_order_ = half_from_interleaved(spec.kv_heads, spec.head_dim);
    }
    if (spec.qkv == QkvTensors::kFused) {
      if (spec_.qk_rows_interleaved) join_orders(q, kv);
      return {{fmt::format("blk.{}.attn_qkv", index), q + 2 * kv, fused_order_}};
    }
    return {{fmt::format("blk.{}.attn_q", index), q, q_order_},
            {fmt::format("blk.{}.attn_k", index), kv, k_order_},
            {fmt::format("blk.{}.attn_v", index), kv, {}}};
  }

  // The order of the rows of q, k and v in one matrix.
  void join_orders(int64_t q_rows, int64_t kv_rows) {
    fused_order_ = q_order_;
    for (const int32_t row : k_order_) fused_order_.push_back(static_cast<int32_t>(q_rows) + row);
    for (int64_t row = 0; row < kv_rows; ++row) {
      fused_order_.push_back(static_cast<int32_t>(q_rows + kv_rows + row));
    }
  }

  std::vector<Part> gate_up_parts(int32_t index) const {
    const DecoderLayerSpec& spec = spec_.layers[static_cast<size_t>(index)];
    const Part up{fmt::format("blk.{}.ffn_up", index), spec.ffn, {}};
    switch (spec.feed_forward) {
      case FeedForward::kGated:
        return {{fmt::format("blk.{}.ffn_gate", index), spec.ffn, {}}, up};
      case FeedForward::kGatedFused:
        return {{up.name, 2 * up.rows, {}}};
      case FeedForward::kPlain:
        return {up};
    }
    __builtin_unreachable();
  }

  Status load_qk_norms(int32_t index, DecoderLayer& layer) {
    const DecoderLayerSpec& spec = layer.spec;
    if (spec.qk_norm == QkNorm::kNone) return ok_status();
    const bool rows = spec.qk_norm == QkNorm::kRow;
    const int64_t q = rows ? int64_t{spec.heads} * spec.head_dim : spec.head_dim;
    const int64_t k = rows ? int64_t{spec.kv_heads} * spec.head_dim : spec.head_dim;
    HR_ASSIGN_OR_RETURN(layer.q_norm, vector(fmt::format("blk.{}.attn_q_norm.weight", index), q));
    HR_ASSIGN_OR_RETURN(layer.k_norm, vector(fmt::format("blk.{}.attn_k_norm.weight", index), k));
    return ok_status();
  }

  // The CPU looks rows up in a tied head, whose packing has lost nothing unless it quantised, or in
  // the file: each row there is 64 KiB of its pages in memory, up to the whole table's. CUDA looks
  // them up in a matrix of its own, which a tied head shares.
  Status load_embedding() {
    if (device_.kind() == DeviceKind::kCpu) {
      if (spec_.tied_embeddings && !options_.quantise_to) return ok_status();
      HR_ASSIGN_OR_RETURN(weights_.embedding, source_.get("token_embd.weight", table_shape()));
      return ok_status();
    }
    if (spec_.tied_embeddings) {
      weights_.embedding = weights_.output.matrix();
      return ok_status();
    }
    HR_ASSIGN_OR_RETURN(weights_.embedding_matrix,
                        matrix({{"token_embd.weight", table_shape(), {}}}));
    weights_.embedding = weights_.embedding_matrix.matrix();
    return ok_status();
  }

  Result<NormWeights> norm(const std::string& name, NormKind kind, float scale = 1.0f) const {
    NormWeights norm{.kind = kind};
    const int64_t hidden = spec_.model.hidden_size;
    if (kind == NormKind::kNone) return norm;
    HR_ASSIGN_OR_RETURN(norm.weight, vector(name + ".weight", hidden, scale));
    if (kind == NormKind::kLayer) {
      HR_ASSIGN_OR_RETURN(norm.bias, vector(name + ".bias", hidden, scale));
    }
    return norm;
  }

  Result<DeviceVector> vector(const std::string& name, int64_t count, float scale = 1.0f) const {
    HR_ASSIGN_OR_RETURN(std::vector<float> values, host_vector(name, count));
    for (float& value : values) value *= scale;
    return DeviceVector::upload(device_, values);
  }

  Result<std::vector<float>> host_vector(const std::string& name, int64_t count) const {
    HR_ASSIGN_OR_RETURN(const ConstTensorView view, source_.get(name, Shape{count}));
    std::vector<float> values(static_cast<size_t>(count));
    dequantise_row(view, 0, values.data());
    return values;
  }

  // The parts' matrices, `columns` wide, stacked; their biases too where they have one.
  Result<LinearLayer> linear(const std::vector<Part>& parts, int64_t columns, bool bias) {
    LinearLayer layer;
    std::vector<MatrixPart> matrices;
    for (const Part& part : parts) {
      matrices.push_back({part.name + ".weight", Shape{part.rows, columns}, part.row_order});
    }
    if (bias) {
      HR_ASSIGN_OR_RETURN(layer.bias, stacked_bias(parts));
    }
    // Last: nothing may fail between the start of its upload and its place in weights_.
    HR_ASSIGN_OR_RETURN(layer.weight, matrix(matrices));
    return layer;
  }

  Result<LinearWeight> matrix(const std::vector<MatrixPart>& parts) {
    std::vector<LinearSource> sources;
    for (const MatrixPart& part : parts) {
      HR_ASSIGN_OR_RETURN(const ConstTensorView view, source_.get(part.name, part.shape));
      sources.push_back({view, part.row_order,
                         [source = &source_, view](int64_t first, int64_t last) {
                           source->release_rows(view, first, last);
                         },
                         released_after(view)});
      if (options_.quantise_to) {
        const bool head = part.shape == table_shape();
        sources.back().quantise_to = quantised_type(*options_.quantise_to, head, view.columns());
      }
    }
    if (uploader_) return LinearWeight::start_pack(device_, *uploader_, sources, compute());
    const std::string& name = parts.front().name;
    PackedCache* const cache = options_.packed_cache;
    if (const auto packed = cache == nullptr ? std::nullopt : cache->find(name)) {
      HR_ASSIGN_OR_RETURN(auto weight, LinearWeight::restore(device_, sources, compute(), *packed));
      if (weight) return std::move(*weight);
    }
    const auto keep = [cache, name](const LinearWeight& weight) {
      if (cache != nullptr && !cache->hit()) cache->add(name, weight.packed());
    };
    if (options_.pack_at_use && !options_.quantise_to && options_.pack_at_use()) {
      return LinearWeight::defer(device_, sources, compute(), keep);
    }
    HR_ASSIGN_OR_RETURN(LinearWeight weight, LinearWeight::pack(device_, sources, compute()));
    keep(weight);
    return weight;
  }

  LinearCompute compute() const {
    switch (options_.compute) {
      case ComputeType::kFast:
        return LinearCompute::kFast;
      case ComputeType::kFastWide:
        return LinearCompute::kFastWide;
      case ComputeType::kFloat32:
        return LinearCompute::kFloat32;
      case ComputeType::kFloat16:
        return LinearCompute::kFloat16;
    }
    __builtin_unreachable();
  }

  // Gives the view back to the source when the last copy is gone.
  std::shared_ptr<const void> released_after(const ConstTensorView& view) const {
    return {view.data, [source = &source_, view](const void*) { source->release(view); }};
  }

  Result<DeviceVector> stacked_bias(const std::vector<Part>& parts) const {
    std::vector<float> stacked;
    for (const Part& part : parts) {
      HR_ASSIGN_OR_RETURN(const std::vector<float> values,
                          host_vector(part.name + ".bias", part.rows));
      for (size_t r = 0; r < values.size(); ++r) {
        const size_t from = part.row_order.empty() ? r : static_cast<size_t>(part.row_order[r]);
        stacked.push_back(values[from]);
      }
    }
    return DeviceVector::upload(device_, stacked);
  }

  const DecoderSpec& spec_;
  const WeightSource& source_;
  Device& device_;
  const ModelLoadOptions& options_;
  DecoderWeights weights_;
  std::vector<int32_t> q_order_, k_order_, fused_order_;
  std::optional<Uploader> uploader_;  // CUDA. Ends before the memory that it writes to
};

}  // namespace

Result<DeviceVector> DeviceVector::upload(Device& device, std::span<const float> values) {
  DeviceVector vector;
  HR_ASSIGN_OR_RETURN(vector.buffer_, headrace::upload(device, std::as_bytes(values)));
  return vector;
}

Result<DecoderWeights> load_decoder_weights(const DecoderSpec& spec, const WeightSource& source,
                                            Device& device, const ModelLoadOptions& options) {
  return DecoderLoader(spec, source, device, options).load();
}

}  // namespace headrace
