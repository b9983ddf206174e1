#include "models/decoder_weights.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "tensor/half.h"
#include "tensor/quantised_row.h"
#include "tensor/uploader.h"

namespace headrace {
namespace {

// What on-load quantisation makes of a matrix. The head chooses tokens, so that 4 bits show there
// most: it gets 8 (llama.cpp's quantiser gives it 6 or 8). Rows that are no whole blocks of Q4_K
// become Q4_1, which has its precision at 5 bits instead of 4.5; rows of no whole blocks at all
// stay.
std::optional<DType> quantised_type(DType wanted, bool head, int64_t columns) {
  DType dtype = head ? DType::kQ8_0 : wanted;
  if (!row_bytes(dtype, columns)) dtype = DType::kQ4_1;
  return row_bytes(dtype, columns) ? std::optional(dtype) : std::nullopt;
}

constexpr const char* kTable = "token_embd.weight";  // of embeddings, and of tied heads

// [count, hidden]. In the precision of the library's, which a far position feels.
std::vector<float> waves_of_positions(const LearnedPositions& positions, int64_t hidden) {
  std::vector<float> rows;
  for (int32_t position = 0; position < positions.count; ++position) {
    for (const bool cosines : {false, true}) {
      for (int64_t k = 0; k < hidden / 2; ++k) {
        const double exponent = -static_cast<double>(k) / positions.wave_steps;
        const auto frequency = static_cast<float>(std::pow(1e4, exponent));
        const float angle = static_cast<float>(positions.first + position) * frequency;
        rows.push_back(
            static_cast<float>(cosines ? std::cos(double{angle}) : std::sin(double{angle})));
      }
    }
  }
  return rows;
}

// A GPU's kernels take experts of one block type, or a matrix. Whether they are, or were left to
// be.
bool keep_experts_alike(std::vector<LinearSource>& sources) {
  const auto type_of = [](const LinearSource& source) {
    const DType own = source.weight.dtype;
    return is_quantised(own) ? own : source.quantise_to.value_or(own);
  };
  const LinearSource& first = sources.front();
  const bool alike = std::ranges::all_of(sources, [&](const LinearSource& source) {
    return source.weight.dtype == first.weight.dtype && type_of(source) == type_of(first) &&
           !source.unpack;
  });
  if (is_quantised(type_of(first)) && alike) return true;
  bool loses = false;  // the few bits that it has
  for (LinearSource& source : sources) {
    loses = loses || (is_quantised(type_of(source)) && !source.unpack);
    source.unpack = true;
    if (source.quantise_to && is_quantised(*source.quantise_to)) source.quantise_to.reset();
  }
  return !loses;
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
    HR_RETURN_IF_ERROR(load_positions());
    HR_RETURN_IF_ERROR(load_carried());
    for (const RopeTable& table : spec_.ropes) HR_RETURN_IF_ERROR(load_rope(table));
    for (int32_t i = 0; i < spec_.model.layer_count; ++i) {
      HR_RETURN_IF_ERROR(load_layer(i));
      report(static_cast<double>(i + 1) / (spec_.model.layer_count + 1));
    }
    HR_RETURN_IF_ERROR(load_features());
    HR_RETURN_IF_ERROR(load_embedding_norm());
    HR_RETURN_IF_ERROR(load_output_norm());
    const char* output = spec_.tied_embeddings ? kTable : "output.weight";
    if (options_.shard.is_split()) {
      weights_.vocabulary = Shares(spec_.outputs(), ranks_of_head(), kLinearGroupRows);
    }
    if (spec_.head.matrix && options_.with_head) {
      if (spec_.output_bias) {
        HR_ASSIGN_OR_RETURN(weights_.output_bias, vector("output.bias", spec_.outputs()));
      }
      HR_ASSIGN_OR_RETURN(weights_.output, head(output));
    }
    // Last: packing a tied head gives the table back to its source.
    HR_RETURN_IF_ERROR(load_embedding());
    report(1.0);
    if (requantised_ > 0) {
      log_warning(
          "{} matrices, {} first, are of no block type and are multiplied in {} (--dtype "
          "float32: as they are)",
          requantised_, first_requantised_, dtype_name(DType::kQ8_0));
    }
    return reserve_unpacked();
  }

  Status reserve_unpacked() {
    Status status;
    for_each_matrix(weights_, [&](LinearWeight& weight) {
      if (!weight.is_packed() && status.ok()) status = weight.reserve();
    });
    return status;
  }

  Status load_carried() {
    if (spec_.carried.is_empty()) return ok_status();
    TensorsOfLayer tensors(*this, TensorsOfLayer::kOfModel);
    return weights_.carried.emplace(spec_.carried, spec_.model.hidden_size).load(tensors);
  }

  // Of one layer, or the model, by their names in it.
  class TensorsOfLayer final : public LayerTensors {
   public:
    static constexpr int32_t kOfModel = -1;
    // `common`: to several layers, so that no adapter is for one of them.
    TensorsOfLayer(DecoderLoader& loader, int32_t layer, const char* prefix = "",
                   bool common = false)
        : loader_(loader), layer_(layer), prefix_(prefix), common_(common) {}
    bool on_gpu() const override { return loader_.device_.kind() == DeviceKind::kCuda; }
    Result<LinearLayer> matrix(const MatrixStack& stack) override {
      MatrixStack in_file = stack;
      for (MatrixStack::Rows& rows : in_file.rows) rows.name = name_in_file(rows.name);
      HR_ASSIGN_OR_RETURN(LinearLayer layer, loader_.linear(in_file));
      if (stack.adapts && !common_) loader_.add_site(std::move(in_file), layer);
      return layer;
    }
    Result<DeviceVector> vector(const std::string& name, int64_t count) override {
      return loader_.vector(name_in_file(name), count);
    }
    Result<DeviceVector> vector_or_zeros(const std::string& name, int64_t count) override {
      const std::string whole = name_in_file(name);
      return loader_.source_.has(whole) ? loader_.vector(whole, count)
                                        : loader_.constant(count, 0.0f);
    }
    Result<std::vector<float>> values(const std::string& name, const Shape& shape) override {
      return loader_.host_values(name_in_file(name), shape);
    }
    Result<ConstTensorView> table(const std::string& name, const Shape& shape) override {
      return loader_.source_.get(name_in_file(name), shape);
    }
    Result<LinearLayer> made(const Shape& shape, std::span<const float> values) override {
      return loader_.made(shape, values);
    }
    Result<DeviceVector> made_vector(std::span<const float> values) override {
      return DeviceVector::upload(loader_.device_, values);
    }
    Result<DeviceVector> constant(int64_t count, float value) override {
      return loader_.constant(count, value);
    }

    Shared shared(int32_t block, const char* prefix) override {
      return {std::make_unique<TensorsOfLayer>(loader_, block, prefix, /*common=*/true),
              loader_.shared_[block]};
    }

   private:
    std::string name_in_file(const std::string& name) const {
      return layer_ == kOfModel ? name : fmt::format("blk.{}.{}{}", layer_, prefix_, name);
    }
    DecoderLoader& loader_;
    const int32_t layer_;
    const char* const prefix_;
    const bool common_;
  };

  void add_site(MatrixStack stack, LinearLayer& layer) {
    if (options_.adapter_rank_max == 0) return;
    layer.site = static_cast<int32_t>(weights_.adapter_sites.size());
    weights_.adapter_sites.push_back(std::move(stack));
  }

  bool is_wanted(int32_t layer) const {
    const auto& range = options_.layers;
    return !range || (layer >= range->first && layer < range->last);
  }

  void report(double done) const {
    if (options_.progress) options_.progress(done);
  }
  Shape table_shape() const { return {spec_.model.vocab_size, spec_.model.hidden_size}; }

  Shape output_shape() const { return {spec_.outputs_in_file(), spec_.model.hidden_size}; }

  // On every device in f32: a few megabytes, of which a step reads one row a token.
  Status load_positions() {
    const auto& [count, first, wave_steps] = spec_.positions;
    if (count == 0) return ok_status();
    const int64_t hidden = spec_.model.hidden_size;
    if (wave_steps > 0) {
      HR_ASSIGN_OR_RETURN(
          weights_.positions,
          DeviceVector::upload(device_, waves_of_positions(spec_.positions, hidden)));
      return ok_status();
    }
    HR_ASSIGN_OR_RETURN(const std::vector<float> rows,
                        host_values("position_embd.weight", Shape{first + count, hidden}));
    const auto skipped = static_cast<size_t>(first * hidden);
    HR_ASSIGN_OR_RETURN(weights_.positions,
                        DeviceVector::upload(device_, std::span(rows).subspan(skipped)));
    return ok_status();
  }

  Status load_rope(const RopeTable& table) {
    RopeWeights rope{.count = static_cast<int64_t>(table.inv_freq.size()), .scale = table.scale};
    std::vector<double> inv_freq = table.inv_freq;
    if (!table.divisors.empty()) {
      HR_ASSIGN_OR_RETURN(
          const std::vector<float> divisors,
          host_vector(table.divisors, std::max(rope.count, table.divisors_in_file)));
      for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] /= divisors[i];
    }
    HR_ASSIGN_OR_RETURN(rope.inv_freq, upload_bytes(device_, std::as_bytes(std::span(inv_freq))));
    weights_.ropes.push_back(std::move(rope));
    return ok_status();
  }

  // It lies in weights_ while it is loaded: uploads write to its memory.
  Status load_layer(int32_t index) {
    TensorsOfLayer tensors(*this, block_of(spec_, index), prefix_of(spec_, index));
    DecoderLayer& layer = weights_.layers.emplace_back(make_layer(spec_, index));
    if (!is_wanted(index)) return ok_status();
    if (options_.shard.is_split()) HR_RETURN_IF_ERROR(layer.split(options_.shard));
    return layer.load(tensors, spec_.model.hidden_size);
  }

  // The CPU looks rows up in a tied head, whose packing has lost nothing unless it quantised, or in
  // the file: each row there is 64 KiB of its pages in memory, up to the whole table's. CUDA looks
  // them up in a matrix of its own, which a tied head shares.
  Status load_embedding() {
    const bool in_head = spec_.tied_embeddings && weights_.output.n() == spec_.model.vocab_size;
    if (device_.kind() == DeviceKind::kCpu) {
      if (in_head && !options_.quantise_to) return ok_status();
      HR_ASSIGN_OR_RETURN(weights_.embedding, source_.get(kTable, table_shape()));
      return ok_status();
    }
    if (!in_head) {
      HR_ASSIGN_OR_RETURN(weights_.embedding_matrix, table(kTable));
    }
    const LinearWeight& looked_up = in_head ? weights_.output : weights_.embedding_matrix;
    if (looked_up.is_matrix()) weights_.embedding = looked_up.matrix();
    return ok_status();
  }

  Status load_features() {
    const FeatureSpec& spec = spec_.features;
    if (spec.use == FeatureUse::kNone) return ok_status();
    const int64_t hidden = spec_.model.hidden_size;
    MatrixStack fc{.columns = spec.fc_columns, .bias = spec.fc_bias};
    fc.rows = {{"fc", hidden}};
    HR_ASSIGN_OR_RETURN(weights_.features.fc, linear(fc));
    if (spec.use == FeatureUse::kJoined) return ok_status();
    NormWeights& norm = weights_.features.norm;
    norm = {.kind = NormKind::kRms, .eps = spec_.norm_eps};
    HR_ASSIGN_OR_RETURN(norm.weight, vector("blk.0.hidden_norm.weight", hidden));
    return ok_status();
  }

  Status load_embedding_norm() {
    NormWeights& norm = weights_.embedding_norm;
    norm.kind = spec_.embedding_norm;
    norm.eps = spec_.norm_eps;
    if (norm.kind == NormKind::kNone) return ok_status();
    const int64_t hidden = spec_.model.hidden_size;
    if (norm.kind == NormKind::kRmsBare) {
      HR_ASSIGN_OR_RETURN(norm.weight, constant(hidden, 1.0f));
      return ok_status();
    }
    HR_ASSIGN_OR_RETURN(norm.weight, vector("token_embd_norm.weight", hidden));
    if (norm.kind == NormKind::kRms) return ok_status();
    CHECK(norm.kind == NormKind::kLayer);
    HR_ASSIGN_OR_RETURN(norm.bias, vector("token_embd_norm.bias", hidden));
    return ok_status();
  }

  // Its scale is that of the logits.
  Status load_output_norm() {
    const int64_t hidden = spec_.model.hidden_size;
    NormWeights& norm = weights_.output_norm;
    norm.kind = spec_.output_norm;
    norm.eps = spec_.norm_eps;
    if (norm.kind == NormKind::kNone) return ok_status();
    if (is_bare(norm.kind)) {
      HR_ASSIGN_OR_RETURN(norm.weight, constant(hidden, spec_.logit_scale));
    } else {
      HR_ASSIGN_OR_RETURN(norm.weight,
                          vector(spec_.output_norm_name + ".weight", hidden, spec_.logit_scale));
    }
    if (norm.kind == NormKind::kLayer) {
      HR_ASSIGN_OR_RETURN(norm.bias, vector("output_norm.bias", hidden, spec_.logit_scale));
    } else if (is_layer_norm(norm.kind)) {
      HR_ASSIGN_OR_RETURN(norm.bias, constant(hidden, 0.0f));
    }
    return ok_status();
  }

  Result<DeviceVector> constant(int64_t count, float value) const {
    return DeviceVector::upload(device_, std::vector(static_cast<size_t>(count), value));
  }

  Result<DeviceVector> vector(const std::string& name, int64_t count, float scale = 1.0f) const {
    HR_ASSIGN_OR_RETURN(std::vector<float> values, host_vector(name, count));
    for (float& value : values) value *= scale;
    return DeviceVector::upload(device_, values);
  }

  Result<std::vector<float>> host_vector(const std::string& name, int64_t count) const {
    return host_values(name, Shape{count});
  }

  Result<std::vector<float>> host_values(const std::string& name, const Shape& shape) const {
    HR_ASSIGN_OR_RETURN(const ConstTensorView view, source_.get(name, shape));
    std::vector<float> values(static_cast<size_t>(shape.elements().value()));
    const auto columns = static_cast<size_t>(view.columns());
    for (int64_t r = 0; r < view.rows(); ++r) {
      dequantise_row(view, r, &values[static_cast<size_t>(r) * columns]);
    }
    return values;
  }

  // A stack, by names in the file.
  Result<LinearLayer> linear(const MatrixStack& stack) {
    LinearLayer layer;
    std::vector<NamedMatrix> matrices;
    for (const MatrixStack::Rows& rows : stack.rows) {
      NamedMatrix& each = matrices.emplace_back(
          NamedMatrix{rows.name + ".weight", {rows.in_file(), stack.columns_in_file()}});
      each.experts = rows.experts;
      each.expert = rows.expert;
      each.exact = stack.exact;
      each.dense = stack.dense || (stack.of_experts && !options_.pack_experts);
      each.of_experts = stack.of_experts;
      each.row_order = rows.order;
      each.first_row = rows.first;
      each.rows = rows.count;
      each.first_column = stack.first_column;
      each.columns = stack.columns;
    }
    if (stack.bias) {
      HR_ASSIGN_OR_RETURN(layer.bias, stacked_bias(stack));
    }
    // Last: nothing may fail between the start of its upload and its place in weights_.
    HR_ASSIGN_OR_RETURN(layer.weight, matrix(matrices));
    return layer;
  }

  // The embedding or the head.
  Result<LinearWeight> table(const std::string& name) {
    return matrix({NamedMatrix{name, table_shape()}});
  }
  // This rank's rows of the head.
  Result<LinearWeight> head(const std::string& name) {
    NamedMatrix rows{name, output_shape()};
    if (ranks_of_head() > 1) {
      rows.first_row = weights_.vocabulary.first(options_.shard.rank);
      rows.rows = weights_.vocabulary.count(options_.shard.rank);
    }
    if (spec_.head.padded && ranks_of_head() == 1) rows.rows = spec_.outputs();
    if (spec_.model.output_rows > 0) rows.rows = spec_.model.output_rows;
    return matrix({rows});
  }
  int32_t ranks_of_head() const { return options_.shard.all_on_one ? 1 : options_.shard.ranks; }

  // A matrix of the file, or a range of its rows and columns.
  struct NamedMatrix {
    NamedMatrix(std::string tensor, const Shape& in_file)
        : name(std::move(tensor)), shape(in_file), rows(in_file[0]), columns(in_file[1]) {}
    std::string name;
    Shape shape;                      // in the file; of each matrix of a stack
    int32_t experts = 0, expert = 0;  // which of how many; 0: it is no stack
    bool exact = false, dense = false, of_experts = false;
    std::span<const int32_t> row_order;
    int64_t first_row = 0, rows;
    int64_t first_column = 0, columns;
  };

  // kInvalidArgument where its columns begin or end within a block.
  Status check_range(const ConstTensorView& whole, const NamedMatrix& range) const {
    if (row_bytes(whole.dtype, range.first_column) && row_bytes(whole.dtype, range.columns)) {
      return ok_status();
    }
    return invalid_argument(fmt::format(
        "{}: {}: columns {} to {} are no whole blocks of {}: {}", source_.description(),
        source_.name_in_file(range.name), range.first_column, range.first_column + range.columns,
        dtype_name(whole.dtype),
        range.of_experts ? "use a lower --tensor-parallel-size, or --enable-expert-parallel"
        : range.dense    ? "use a lower --tensor-parallel-size"
                         : "use --tensor-parallel-sums gather"));
  }
  Result<ConstTensorView> range_of(const ConstTensorView& whole, const NamedMatrix& range) const {
    HR_RETURN_IF_ERROR(check_range(whole, range));
    return ConstTensorView(whole.row(range.first_row) + *row_bytes(whole.dtype, range.first_column),
                           whole.dtype, Shape{range.rows, range.columns}, whole.row_stride);
  }

  // REQUIRES: uses_->mutex is held
  Result<ConstTensorView> whole_of(const NamedMatrix& wanted) const {
    if (wanted.experts == 0) return source_.get(wanted.name, wanted.shape);
    const Shape stack{wanted.experts, wanted.shape[0], wanted.shape[1]};
    return source_.get_matrix(wanted.name, stack, wanted.expert);
  }

  // Of a matrix whose rows are made when they are read.
  Result<LinearSource> made_source_of(const NamedMatrix& wanted,
                                      std::shared_ptr<const RowReader> reader) {
    const Shape in_file = reader->shape();
    if (in_file != wanted.shape) {
      return corrupt(fmt::format("{}: tensor {}: shape {}, the model's configuration needs {}",
                                 source_.description(), source_.name_in_file(wanted.name),
                                 in_file.to_string(), wanted.shape.to_string()));
    }
    const ConstTensorView whole(nullptr, reader->dtype(), in_file);
    HR_RETURN_IF_ERROR(check_range(whole, wanted));
    LinearSource source{{nullptr, reader->dtype(), Shape{wanted.rows, wanted.columns}},
                        wanted.row_order};
    source.first_row = wanted.first_row;
    source.first_column = wanted.first_column;
    source.unpack = options_.unpack_blocks || wanted.dense;
    const auto fast = reader->fast_type();
    const bool fits = fast && row_bytes(*fast, wanted.columns);
    // The numbers that the file has; but rows of the table are looked up, as those of Q8_0.
    if (device_.kind() == DeviceKind::kCuda && reader->has_float8_rows() && wanted.name != kTable) {
      source.quantise_to = DType::kF8;
    } else if (fits && compute_of(wanted) != LinearCompute::kFloat32 && !source.unpack) {
      source.quantise_to = fast;
      if (requantised_++ == 0) first_requantised_ = source_.name_in_file(wanted.name);
    }
    quantise_as_asked(wanted, source);
    source.reader = std::move(reader);
    return source;
  }

  Result<LinearSource> source_of(const NamedMatrix& wanted) {
    HR_ASSIGN_OR_RETURN(auto reader, source_.rows(wanted.name, wanted.expert));
    if (reader != nullptr) return made_source_of(wanted, std::move(reader));
    std::unique_lock lock(uses_->mutex);
    HR_ASSIGN_OR_RETURN(const ConstTensorView whole, whole_of(wanted));
    // Rows are looked up in a table of which a part is the head, or another stage's: it stays.
    const bool in_part =
        options_.shard.is_split() || spec_.model.output_rows > 0 || options_.layers.has_value();
    const bool looked_up = in_part && wanted.name == kTable;
    std::shared_ptr<const void> hold;
    if (!looked_up) hold = released_after(whole);
    lock.unlock();
    HR_ASSIGN_OR_RETURN(const ConstTensorView view, range_of(whole, wanted));
    LinearSource source{view, wanted.row_order};
    if (wanted.columns == whole.columns()) {
      source.done = [from = &source_, whole, skipped = wanted.first_row](int64_t first,
                                                                         int64_t last) {
        from->release_rows(whole, skipped + first, skipped + last);
      };
    }
    source.hold = std::move(hold);
    source.unpack = options_.unpack_blocks || wanted.dense;
    quantise_as_asked(wanted, source);
    return source;
  }

  void quantise_as_asked(const NamedMatrix& wanted, LinearSource& source) const {
    if (!options_.quantise_to || wanted.exact || wanted.dense) return;
    if (options_.quantise_to == DType::kF8) {
      // Rows are looked up in the table, which a tied head shares; what is FP8 in the file stays.
      if (wanted.name != kTable) source.quantise_to = DType::kF8;
      return;
    }
    const bool head = wanted.shape == table_shape() || wanted.shape == output_shape();
    source.quantise_to = quantised_type(*options_.quantise_to, head, wanted.columns);
  }

  Result<LinearWeight> matrix(const std::vector<NamedMatrix>& stacked) {
    std::vector<LinearSource> sources;
    for (const NamedMatrix& each : stacked) {
      HR_ASSIGN_OR_RETURN(LinearSource source, source_of(each));
      sources.push_back(std::move(source));
    }
    if (stacked.front().of_experts && device_.kind() == DeviceKind::kCuda &&
        !keep_experts_alike(sources) && unlike_experts_++ == 0) {
      log_warning("{}: {}: experts of several types: they have 16 bits on a GPU",
                  source_.description(), source_.name_in_file(stacked.front().name));
    }
    const LinearCompute compute = compute_of(stacked.front());
    if (uploader_) return LinearWeight::start_pack(device_, *uploader_, sources, compute);
    const std::string name = name_of(stacked.front());
    PackedCache* const cache = options_.packed_cache;
    if (const auto packed = cache == nullptr ? std::nullopt : cache->find(name)) {
      HR_ASSIGN_OR_RETURN(auto weight, LinearWeight::restore(device_, sources, compute, *packed));
      if (weight) return std::move(*weight);
    }
    const auto keep = [cache, name](const LinearWeight& weight) {
      if (cache != nullptr && !cache->hit()) cache->add(name, weight.packed());
    };
    const bool as_is = std::ranges::none_of(
        sources, [](const LinearSource& source) { return source.quantise_to.has_value(); });
    if (options_.pack_at_use && as_is && options_.pack_at_use()) {
      return LinearWeight::defer(device_, sources, compute, keep);
    }
    HR_ASSIGN_OR_RETURN(LinearWeight weight, LinearWeight::pack(device_, sources, compute));
    keep(weight);
    return weight;
  }

  static DType made_type(LinearCompute compute, std::span<const float> values) {
    constexpr float kF16Max = 65504.0f;
    if (compute == LinearCompute::kFloat32) return DType::kF32;
    const auto in_bf16 = [](float x) { return bfloat16_to_float(float_to_bfloat16(x)) == x; };
    if (std::ranges::all_of(values, in_bf16)) return DType::kBF16;
    const auto in_range = [](float x) { return std::abs(x) <= kF16Max; };
    return std::ranges::all_of(values, in_range) ? DType::kF16 : DType::kF32;
  }

  // In BF16 where that loses nothing, as most files have what it is made of, else in F16, which
  // rounds eight times finer; in F32 where all is computed so, or a value is beyond F16.
  Result<LinearLayer> made(const Shape& shape, std::span<const float> values) const {
    const LinearCompute compute = compute_of_all();
    LinearLayer layer;
    std::vector<uint16_t> rounded;
    ConstTensorView view{reinterpret_cast<const std::byte*>(values.data()), DType::kF32, shape};
    const DType type = made_type(compute, values);
    if (type != DType::kF32) {
      const auto round = type == DType::kF16 ? float_to_half : float_to_bfloat16;
      for (const float value : values) rounded.push_back(round(value));
      view = {reinterpret_cast<const std::byte*>(rounded.data()), type, shape};
    }
    const LinearSource source{view, {}};
    HR_ASSIGN_OR_RETURN(layer.weight, LinearWeight::pack(device_, std::span(&source, 1), compute));
    return layer;
  }

  // In the file of packed weights.
  static std::string name_of(const NamedMatrix& matrix) {
    return matrix.experts == 0 ? matrix.name : fmt::format("{}#{}", matrix.name, matrix.expert);
  }

  LinearCompute compute_of(const NamedMatrix& matrix) const {
    return matrix.exact ? LinearCompute::kFloat32 : compute_of_all();
  }
  LinearCompute compute_of_all() const {
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
  // Several matrices may be ranges of one tensor: the last of them to be packed, on a thread of the
  // uploader, gives it back. REQUIRES: uses_->mutex is held, since before the source gave the
  // tensor
  std::shared_ptr<const void> released_after(const ConstTensorView& view) {
    ++uses_->of[view.data];
    return {view.data, [source = &source_, uses = uses_, view](const void*) {
              const std::lock_guard lock(uses->mutex);
              if (--uses->of[view.data] == 0) source->release(view);
            }};
  }

  Result<DeviceVector> stacked_bias(const MatrixStack& stack) const {
    std::vector<float> stacked;
    for (const MatrixStack::Rows& rows : stack.rows) {
      if (rows.bare) {
        stacked.insert(stacked.end(), static_cast<size_t>(rows.count), 0.0f);
        continue;
      }
      const Shape in_file =
          rows.experts > 0 ? Shape{rows.experts, rows.in_file()} : Shape{rows.in_file()};
      HR_ASSIGN_OR_RETURN(const std::vector<float> values,
                          host_values(rows.name + ".bias", in_file));
      const int64_t first = rows.expert * rows.in_file() + rows.first;
      const std::span<const float> own =
          std::span(values).subspan(static_cast<size_t>(first), static_cast<size_t>(rows.count));
      for (size_t r = 0; r < own.size(); ++r) {
        const size_t from = rows.order.empty() ? r : static_cast<size_t>(rows.order[r]);
        stacked.push_back(own[from]);
      }
    }
    return DeviceVector::upload(device_, stacked);
  }

  const DecoderSpec& spec_;
  const WeightSource& source_;
  Device& device_;
  const ModelLoadOptions& options_;
  DecoderWeights weights_;
  // Matrices whose rows are made as floats and packed as blocks.
  int32_t requantised_ = 0, unlike_experts_ = 0;
  std::map<int32_t, std::shared_ptr<void>> shared_;  // parts, by the layer that has their tensors
  std::string first_requantised_;
  // Of a tensor's memory, how many matrices are still to be packed.
  struct Uses {
    std::mutex mutex;
    std::map<const std::byte*, int> of;
  };
  const std::shared_ptr<Uses> uses_ = std::make_shared<Uses>();
  std::optional<Uploader> uploader_;  // CUDA. Ends before the memory that it writes to
};

}  // namespace

Result<DecoderWeights> load_decoder_weights(const DecoderSpec& spec, const WeightSource& source,
                                            Device& device, const ModelLoadOptions& options) {
  return DecoderLoader(spec, source, device, options).load();
}

}  // namespace headrace
