#include "weights/safetensors_source.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "tensor/quantised_row.h"
#include "weights/file_identity.h"
#include "weights/hub_experts.h"
#include "weights/safetensors_files.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

using Files = SafetensorsFiles;

constexpr uintptr_t kAlignment = 8;  // that WeightSource promises

bool is_aligned(const std::byte* data) {
  return reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
}

bool inside(std::span<const std::byte> outer, const std::byte* at) {
  return at >= outer.data() && at < outer.data() + outer.size();
}

}  // namespace

// ---- opening ----------------------------------------------------------------------------------

Result<std::unique_ptr<SafetensorsWeightSource>> SafetensorsWeightSource::open(
    const std::string& path, const SafetensorsOptions& options) {
  HR_ASSIGN_OR_RETURN(Files files, open_safetensors_files(path));
  std::error_code ignored;
  const fs::path given(path);
  const fs::path folder = fs::is_directory(given, ignored) ? given : given.parent_path();
  SafetensorsOptions own = options;
  HR_ASSIGN_OR_RETURN(own.quantisation, hub_quantisation_of_folder(folder.string()));
  return create(std::move(files), path, own);
}

struct SafetensorsWeightSource::NamedTensor {
  std::string name;
  int32_t expert = -1;  // a matrix of the stack `name`; -1: all of it
  Half half = Half::kNone;
  float offset = 0;
  const SafetensorsTensor* tensor = nullptr;
  std::shared_ptr<const HubMatrix> matrix = nullptr;  // of which `tensor` is the quants
};

namespace {

// A tensor by the name that it would have if it were plain, or a quantised matrix.
struct StoredTensor {
  std::string name;
  const SafetensorsTensor* tensor;
  std::shared_ptr<const HubMatrix> matrix;
};

// Whether a tensor called M.weight is the quants of M.
bool has_quants(const SafetensorsTensor& tensor, HubMethod method) {
  const std::string_view type = tensor.type->name;
  return type == "F8_E4M3" || (type == "I8" && method == HubMethod::kCompressedTensors) ||
         (type == "U8" && (method == HubMethod::kModelOpt || method == HubMethod::kBitNet));
}

// The tensors of a quantised model: several are one matrix.
Result<std::vector<StoredTensor>> join_quantised(const Files& files, std::string_view description,
                                                 const HubQuantisation& quantisation) {
  std::vector<StoredTensor> stored;
  std::map<std::string_view, HubTensors> matrices;
  for (const auto& file : files) {
    for (const SafetensorsTensor& tensor : file->plan().tensors) {
      const HubTensorName part = hub_tensor_name(tensor.name);
      if (part.not_read) continue;
      const bool plain =
          tensor.name.ends_with(".weight") && !has_quants(tensor, quantisation.method);
      if (part.member == nullptr || plain) {
        stored.push_back({tensor.name, &tensor, nullptr});
        continue;
      }
      const SafetensorsTensor*& own = matrices[part.matrix].*part.member;
      if (own != nullptr) {
        return corrupt(fmt::format("{}: tensors {} and {} are the same of one matrix", description,
                                   printable(own->name), printable(tensor.name)),
                       tensor.name);
      }
      own = &tensor;
    }
  }
  for (const auto& [name, tensors] : matrices) {
    if (tensors.quants == nullptr) {
      const SafetensorsTensor* rest = tensors.scales != nullptr ? tensors.scales : tensors.zeros;
      if (rest == nullptr) rest = tensors.order != nullptr ? tensors.order : tensors.shape;
      if (rest == nullptr) rest = tensors.global;
      return hub_tensor_error(*rest, "the weights that it is of are missing")
          .with_context(description);
    }
    auto matrix = HubMatrix::create(tensors, quantisation);
    if (!matrix.ok()) return matrix.status().with_context(description);
    stored.push_back({std::string(name) + ".weight", tensors.quants, std::move(matrix).value()});
  }
  return stored;
}

// A tensor of so many dimensions that stands beside experts', such as their router; null: there is
// none.
const SafetensorsTensor* find_beside(const Files& files, const SafetensorsTensor& of_experts,
                                     std::string_view name, int rank) {
  const std::string_view own = of_experts.name;
  const std::string beside =
      fmt::format("{}{}", own.substr(0, std::min(own.find("experts."), own.size())), name);
  for (const auto& file : files) {
    const SafetensorsTensor* const found = file->find(beside);
    if (found != nullptr && found->shape.rank() == rank) return found;
  }
  return nullptr;
}

// What kTurnedByWidth is of this tensor. One of the two may be square, not both.
HfForm form_by_width(const Files& files, const SafetensorsTensor& tensor, const HfMatch& match) {
  if (match.form != HfForm::kTurnedByWidth) return match.form;
  const SafetensorsTensor* const router = find_beside(files, tensor, "gate.weight", 2);
  const SafetensorsTensor* const first = find_beside(files, tensor, "experts.gate_up_proj", 3);
  const SafetensorsTensor* const last = find_beside(files, tensor, "experts.down_proj", 3);
  const bool plain = router != nullptr && first != nullptr && last != nullptr &&
                     first->shape[2] == router->shape[1] && last->shape[1] == router->shape[1];
  if (plain) return HfForm::kPlain;
  return match.second_half.empty() ? HfForm::kTurned : HfForm::kTurnedHalves;
}

Result<std::vector<StoredTensor>> stored_tensors(const Files& files, std::string_view description,
                                                 const SafetensorsOptions& options) {
  // Matrices of MXFP4 are known by their names (hf_names.h).
  if (options.quantisation && options.quantisation->method != HubMethod::kMxfp4) {
    return join_quantised(files, description, *options.quantisation);
  }
  std::vector<StoredTensor> stored;
  for (const auto& file : files) {
    for (const SafetensorsTensor& tensor : file->plan().tensors) {
      stored.push_back({tensor.name, &tensor, nullptr});
    }
  }
  return stored;
}

}  // namespace

Result<std::vector<SafetensorsWeightSource::NamedTensor>> SafetensorsWeightSource::name_tensors(
    const Files& files, std::string_view description, const SafetensorsOptions& options,
    Reshaped& reshaped) {
  HR_ASSIGN_OR_RETURN(std::vector<StoredTensor> stored,
                      stored_tensors(files, description, options));
  std::vector<NamedTensor> tensors;
  for (StoredTensor& each : stored) {
    auto match = match_in_model(options.names, each.name);
    if (!match) {
      tensors.push_back({.name = each.name, .tensor = each.tensor, .matrix = each.matrix});
      continue;
    }
    if (match->gguf.empty()) continue;
    if (match->gguf == "output.weight" && options.tied_embeddings) continue;
    match->form = form_by_width(files, *each.tensor, *match);
    if (is_flat_stack(match->form)) {
      auto stack = stack_of(files, *each.tensor, reshaped);
      if (!stack.ok()) return stack.status().with_context(description);
      each.tensor = *stack;
    }
    NamedTensor named{.name = match->gguf,
                      .expert = match->expert,
                      .offset = match->offset,
                      .tensor = each.tensor,
                      .matrix = each.matrix};
    if (is_turned_stack(match->form) || match->form == HfForm::kMxfp4) {
      HR_RETURN_IF_ERROR(
          add_experts(files, *each.tensor, *match, tensors).with_context(description));
      continue;
    }
    if (match->form == HfForm::kTurnedAlone || match->form == HfForm::kIntegers) {
      if (each.matrix != nullptr) {
        return hub_tensor_error(*each.tensor, "quantised matrices of this class are not supported")
            .with_context(description);
      }
      auto formed = match->form == HfForm::kIntegers ? open_integer_matrix(*each.tensor)
                                                     : open_turned_matrix(*each.tensor);
      if (!formed.ok()) return formed.status().with_context(description);
      named.matrix = std::move(formed).value();
    }
    if (!match->second_half.empty()) {
      const bool by_turns = match->form == HfForm::kByTurns;
      const bool rows = match->form == HfForm::kRowsByTurns;
      NamedTensor second = named;
      second.name = match->second_half;
      second.half = by_turns ? Half::kOdd : rows ? Half::kOddRows : Half::kSecond;
      tensors.push_back(std::move(second));
      named.half = by_turns ? Half::kEven : rows ? Half::kEvenRows : Half::kFirst;
    }
    tensors.push_back(std::move(named));
  }
  return tensors;
}

// Of matrices one below the other, as many as the router beside them has rows.
Result<const SafetensorsTensor*> SafetensorsWeightSource::stack_of(const Files& files,
                                                                   const SafetensorsTensor& flat,
                                                                   Reshaped& reshaped) {
  const SafetensorsTensor* const router = find_beside(files, flat, "router.layer.weight", 2);
  const int64_t experts = router == nullptr ? 0 : router->shape[0];
  if (experts < 1 || flat.shape.rank() != 2 || flat.shape[0] % experts != 0) {
    return hub_tensor_error(
        flat, fmt::format("shape {} is no stack of {} matrices", flat.shape.to_string(), experts));
  }
  auto stack = std::make_unique<SafetensorsTensor>(flat);
  stack->shape = Shape{experts, flat.shape[0] / experts, flat.shape[1]};
  reshaped.push_back(std::move(stack));
  return reshaped.back().get();
}

// The experts' matrices in one tensor, each made by itself.
Status SafetensorsWeightSource::add_experts(const Files& files, const SafetensorsTensor& tensor,
                                            const HfMatch& match,
                                            std::vector<NamedTensor>& tensors) {
  HubTensors own{.quants = &tensor};
  constexpr std::string_view kBlocks = "_blocks";
  if (match.form == HfForm::kMxfp4 && tensor.name.ends_with(kBlocks)) {
    const std::string scales =
        tensor.name.substr(0, tensor.name.size() - kBlocks.size()) + "_scales";
    for (const auto& file : files) {
      if (const SafetensorsTensor* found = file->find(scales)) own.scales = found;
    }
  }
  const int64_t step = match.second_half.empty() ? 1 : 2;
  HR_ASSIGN_OR_RETURN(const int64_t experts, hub_expert_count(own, match.form, step));
  for (int64_t half = 0; half < step; ++half) {
    for (int64_t expert = 0; expert < experts; ++expert) {
      ExpertRowsOf rows{expert, half, step};
      if (match.form == HfForm::kTurnedHalves) {
        rows = {.expert = expert, .first = half * tensor.shape[2] / step, .parts = step};
      }
      tensors.push_back({.name = half == 0 ? match.gguf : match.second_half,
                         .expert = static_cast<int32_t>(expert),
                         .tensor = &tensor,
                         .matrix = open_hub_expert(own, match.form, rows)});
    }
  }
  return ok_status();
}

Result<std::unique_ptr<SafetensorsWeightSource>> SafetensorsWeightSource::create(
    Files files, std::string description, const SafetensorsOptions& options) {
  Reshaped reshaped;
  HR_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors,
                      name_tensors(files, description, options, reshaped));
  HR_ASSIGN_OR_RETURN(std::vector<Entry> entries, join(std::move(tensors), description));
  return std::unique_ptr<SafetensorsWeightSource>(new SafetensorsWeightSource(
      std::move(files), std::move(description), options, std::move(entries), std::move(reshaped)));
}

// Tensors of one name are the matrices of one stack.
Result<std::vector<SafetensorsWeightSource::Entry>> SafetensorsWeightSource::join(
    std::vector<NamedTensor> tensors, std::string_view description) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return std::tie(a.name, a.expert) < std::tie(b.name, b.expert);
  });
  std::vector<Entry> entries;
  for (NamedTensor& tensor : tensors) {
    const bool by_expert = tensor.expert >= 0;
    if (!entries.empty() && entries.back().name == tensor.name) {
      Entry& entry = entries.back();
      if (!by_expert || !entry.by_expert || tensor.expert < std::ssize(entry.tensors)) {
        return corrupt(fmt::format("{}: tensors {} and {} are both {}", description,
                                   printable(entry.tensors.back()->name),
                                   printable(tensor.tensor->name), printable(tensor.name)),
                       tensor.name);
      }
    } else {
      entries.push_back({.name = std::move(tensor.name),
                         .offset = tensor.offset,
                         .by_expert = by_expert,
                         .half = tensor.half});
    }
    Entry& entry = entries.back();
    if (by_expert && tensor.expert != std::ssize(entry.tensors)) {
      return corrupt(fmt::format("{}: tensor {}: there is none of expert {}", description,
                                 printable(tensor.tensor->name), entry.tensors.size()),
                     entry.name);
    }
    entry.tensors.push_back(tensor.tensor);
    if (tensor.matrix != nullptr) entry.quantised.push_back(std::move(tensor.matrix));
  }
  for (Entry& entry : entries) {
    HR_RETURN_IF_ERROR(check_pieces(entry, description));
    const Shape first =
        entry.is_quantised() ? entry.quantised.front()->shape() : entry.tensors.front()->shape;
    entry.shape = first;
    if (entry.by_expert) entry.shape = Shape{std::ssize(entry.tensors), first[0], first[1]};
    if (entry.half == Half::kNone) continue;
    if (entry.by_turns()) {
      entry.shape = Shape{first[0], first[1] / 2};
      continue;
    }
    entry.shape =
        first.rank() == 2 ? Shape{first[0] / 2, first[1]} : Shape{first[0], first[1] / 2, first[2]};
  }
  return entries;
}

// That what is to be a stack of matrices is one.
Status SafetensorsWeightSource::check_pieces(const Entry& entry, std::string_view description) {
  const SafetensorsTensor& first = *entry.tensors.front();
  if (entry.is_quantised()) return check_quantised(entry, description);
  if (!entry.in_pieces()) return ok_status();
  for (const SafetensorsTensor* tensor : entry.tensors) {
    const auto wrong = [&](std::string_view what) {
      return corrupt(fmt::format("{}: tensor {}: {}", description, printable(tensor->name), what),
                     tensor->name);
    };
    const Shape& shape = tensor->shape;
    if (entry.by_expert && shape.rank() != 2) {
      return wrong(fmt::format("shape {} is no matrix", shape.to_string()));
    }
    const int rank = shape.rank();
    if (entry.by_turns() && (rank != 2 || shape[1] % 2 != 0)) {
      return wrong(fmt::format("shape {} is none of gates and ups by turns", shape.to_string()));
    }
    if (entry.by_turns()) continue;
    if (entry.half != Half::kNone && (rank < 2 || rank > 3 || shape[rank - 2] % 2 != 0)) {
      return wrong(fmt::format("shape {} is no stack of gates and ups", shape.to_string()));
    }
    if (shape != first.shape || tensor->type != first.type) {
      return wrong(fmt::format("{} {}, but {} is {} {}", tensor->type->name, shape.to_string(),
                               printable(first.name), first.type->name, first.shape.to_string()));
    }
  }
  return ok_status();
}

// Of quantised matrices, which are never halves of stacks or offset.
Status SafetensorsWeightSource::check_quantised(const Entry& entry, std::string_view description) {
  const SafetensorsTensor& first = *entry.tensors.front();
  const auto wrong = [&](const SafetensorsTensor& tensor, std::string_view what) {
    return hub_tensor_error(tensor, what).with_context(description);
  };
  if (entry.half != Half::kNone || entry.offset != 0) {
    return wrong(first, fmt::format("type {} is not supported here", entry.quantised[0]->type()));
  }
  if (entry.quantised.size() != entry.tensors.size()) {
    return wrong(first, "some matrices of this stack are quantised, and others are not");
  }
  for (const auto& matrix : entry.quantised) {
    if (matrix->shape() == entry.quantised[0]->shape()) continue;
    return wrong(matrix->quants(),
                 fmt::format("is {}, but {} is {}", matrix->shape().to_string(),
                             printable(first.name), entry.quantised[0]->shape().to_string()));
  }
  return ok_status();
}

SafetensorsWeightSource::SafetensorsWeightSource(Files files, std::string description,
                                                 const SafetensorsOptions& options,
                                                 std::vector<Entry> entries, Reshaped reshaped)
    : files_(std::move(files)),
      reshaped_(std::move(reshaped)),
      description_(std::move(description)),
      names_(options.names),
      is_quantised_(options.quantisation.has_value()),
      entries_(std::move(entries)) {}

// ---- reading ----------------------------------------------------------------------------------

SafetensorsWeightSource::Entry* SafetensorsWeightSource::find(std::string_view name) const {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const Entry& entry, std::string_view text) { return entry.name < text; });
  return at != entries_.end() && at->name == name ? &*at : nullptr;
}

std::vector<std::string_view> SafetensorsWeightSource::names() const {
  std::vector<std::string_view> names;
  names.reserve(entries_.size());
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

DType SafetensorsWeightSource::dtype_of(const Entry& entry) {
  return entry.offset != 0 ? DType::kF32 : *entry.tensors.front()->type->dtype;
}

std::optional<WeightInfo> SafetensorsWeightSource::info(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) return std::nullopt;
  if (entry->is_quantised()) {
    int64_t bytes = 0;
    for (const auto& matrix : entry->quantised) bytes += matrix->bytes();
    return WeightInfo{.name_in_file = printable(entry->tensors.front()->name),
                      .type = entry->quantised.front()->type(),
                      .dtype = DType::kF32,
                      .shape = entry->shape,
                      .bytes = bytes};
  }
  const SafetensorsType& type = *entry->tensors.front()->type;
  size_t bytes = 0;
  for (const SafetensorsTensor* tensor : entry->tensors) bytes += tensor->bytes.size();
  if (entry->half != Half::kNone) bytes /= 2;
  return WeightInfo{.name_in_file = printable(entry->tensors.front()->name),
                    .type = type.name,
                    .dtype = type.dtype ? std::optional(dtype_of(*entry)) : std::nullopt,
                    .shape = entry->shape,
                    .bytes = static_cast<int64_t>(bytes)};
}

Result<SafetensorsWeightSource::Entry*> SafetensorsWeightSource::readable(
    std::string_view name) const {
  Entry* entry = find(name);
  if (entry == nullptr) {
    return corrupt(
        fmt::format("{}: tensor {}: missing", description_, printable(name_in_file(name))),
        std::string(name));
  }
  if (entry->is_quantised()) {
    for (const auto& matrix : entry->quantised) {
      const Status status = matrix->prepare();
      if (!status.ok()) return status.with_context(description_);
    }
    return entry;
  }
  const SafetensorsTensor& tensor = *entry->tensors.front();
  if (!tensor.type->dtype) {
    return unsupported(fmt::format("{}: tensor {}: type {} is not supported yet", description_,
                                   printable(tensor.name), tensor.type->name),
                       tensor.name);
  }
  return entry;
}

Result<ConstTensorView> SafetensorsWeightSource::get(std::string_view name) const {
  HR_ASSIGN_OR_RETURN(Entry * entry, readable(name));
  if (entry->is_quantised()) return made(*entry, kWhole);
  if (entry->offset == 0 && !entry->in_pieces()) {
    return aligned(*entry, kWhole, entry->tensors.front()->bytes, entry->shape);
  }
  const bool is_part = entry->half == Half::kFirst || entry->half == Half::kSecond;
  if (is_part && entry->shape.rank() == 2) {
    return aligned(*entry, kWhole, half_of(*entry, entry->tensors.front()->bytes), entry->shape);
  }
  const std::lock_guard lock(mutex_);
  auto& copy = entry->copies[kWhole];
  if (copy == nullptr) copy = converted(*entry);
  return ConstTensorView(copy.get(), dtype_of(*entry), entry->shape);
}

Result<ConstTensorView> SafetensorsWeightSource::get_matrix(std::string_view name,
                                                            int64_t index) const {
  HR_ASSIGN_OR_RETURN(Entry * entry, readable(name));
  CHECK(entry->shape.rank() == 3 && index >= 0 && index < entry->shape[0] && entry->offset == 0);
  if (entry->is_quantised()) return made(*entry, index);
  if (entry->rows_by_turns()) return rows_of_turns(*entry, index);
  return aligned(*entry, index, matrix_bytes(*entry, index),
                 Shape{entry->shape[1], entry->shape[2]});
}

// A copy of one matrix, or of all.
Result<ConstTensorView> SafetensorsWeightSource::made(Entry& entry, int64_t index) const {
  const auto& all = entry.quantised;
  const DType dtype = all[static_cast<size_t>(std::max<int64_t>(index, 0))]->dtype();
  const size_t first = index == kWhole ? 0 : static_cast<size_t>(index);
  const size_t last = index == kWhole ? all.size() : first + 1;
  const Shape matrix = all[first]->shape();
  const int64_t bytes = *row_bytes(dtype, matrix[1]);
  const Shape shape = index == kWhole ? entry.shape : matrix;
  const std::lock_guard lock(mutex_);
  auto& copy = entry.copies[index];
  if (copy != nullptr) return ConstTensorView(copy.get(), dtype, shape);
  copy = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes * matrix[0]) *
                                                     (last - first));
  std::byte* at = copy.get();
  for (size_t i = first; i < last; ++i) {
    if (all[i]->dtype() != dtype) {
      entry.copies.erase(index);
      return unsupported(fmt::format("{}: tensor {}: is not of one type with {}", description_,
                                     printable(all[i]->quants().name),
                                     printable(all[first]->quants().name)));
    }
    for (int64_t row = 0; row < matrix[0]; ++row, at += bytes) {
      all[i]->read({&row, 1}, 0, matrix[1], at);
    }
  }
  return ConstTensorView(copy.get(), dtype, shape);
}

Result<std::shared_ptr<const RowReader>> SafetensorsWeightSource::rows(std::string_view name,
                                                                       int64_t index) const {
  const Entry* known = find(name);
  if (known == nullptr || !known->is_quantised()) return std::shared_ptr<const RowReader>();
  CHECK(index >= 0 && index < std::ssize(known->quantised));
  const auto matrix = known->quantised[static_cast<size_t>(index)];
  const Status status = matrix->prepare();
  if (!status.ok()) return status.with_context(description_);
  const auto give_back = [this, matrix](const RowReader*) {
    for (const SafetensorsTensor* tensor : matrix->all_tensors()) release_bytes(tensor->bytes);
  };
  return std::shared_ptr<const RowReader>(matrix.get(), give_back);
}

// Tools wrote biases of zeros into models that have none.
bool SafetensorsWeightSource::adds_nothing(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr || !is_quantised_ || !name.ends_with(".bias")) return false;
  const auto& bytes = entry->tensors.front()->bytes;
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

std::span<const std::byte> SafetensorsWeightSource::matrix_bytes(const Entry& entry,
                                                                 int64_t index) {
  const auto i = static_cast<size_t>(index);
  if (entry.by_expert) return entry.tensors[i]->bytes;
  const std::span<const std::byte> all = entry.tensors.front()->bytes;
  const size_t size = all.size() / static_cast<size_t>(entry.shape[0]);
  return half_of(entry, all.subspan(i * size, size));
}

std::span<const std::byte> SafetensorsWeightSource::half_of(const Entry& entry,
                                                            std::span<const std::byte> matrix) {
  const size_t size = matrix.size();
  if (entry.half == Half::kNone) return matrix;
  return entry.half == Half::kFirst ? matrix.first(size / 2) : matrix.subspan(size / 2);
}

// new std::byte[] is 16-byte aligned.
ConstTensorView SafetensorsWeightSource::aligned(Entry& entry, int64_t index,
                                                 std::span<const std::byte> bytes,
                                                 const Shape& shape) const {
  if (is_aligned(bytes.data())) return {bytes.data(), dtype_of(entry), shape};
  const std::lock_guard lock(mutex_);
  std::unique_ptr<std::byte[]>& copy = entry.copies[index];
  if (copy == nullptr) {
    copy = std::make_unique_for_overwrite<std::byte[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy.get());
  }
  return {copy.get(), dtype_of(entry), shape};
}

std::unique_ptr<std::byte[]> SafetensorsWeightSource::converted(const Entry& entry) {
  if (entry.by_turns() || entry.rows_by_turns()) {
    return each_second(entry, entry.tensors.front()->bytes);
  }
  if (entry.in_pieces()) {
    const auto size = static_cast<size_t>(*tensor_bytes(dtype_of(entry), entry.shape));
    auto copy = std::make_unique_for_overwrite<std::byte[]>(size);
    std::byte* at = copy.get();
    for (int64_t i = 0; i < entry.shape[0]; ++i) {
      at = std::ranges::copy(matrix_bytes(entry, i), at).out;
    }
    return copy;
  }
  const SafetensorsTensor& tensor = *entry.tensors.front();
  const auto count = static_cast<size_t>(tensor.elements);
  std::vector<float> values(count);
  dequantise_row(*tensor.type->dtype, tensor.bytes, values);
  for (float& value : values) value += entry.offset;
  auto copy = std::make_unique_for_overwrite<std::byte[]>(count * sizeof(float));
  std::memcpy(copy.get(), values.data(), count * sizeof(float));
  return copy;
}

std::unique_ptr<std::byte[]> SafetensorsWeightSource::each_second(const Entry& entry,
                                                                  std::span<const std::byte> all) {
  const int64_t columns = entry.rows_by_turns() ? entry.shape[entry.shape.rank() - 1] : 1;
  const auto size = static_cast<size_t>(*row_bytes(dtype_of(entry), columns));
  auto copy = std::make_unique_for_overwrite<std::byte[]>(all.size() / 2);
  const bool odd = entry.half == Half::kOdd || entry.half == Half::kOddRows;
  for (size_t at = 0; at < all.size() / 2; at += size) {
    std::memcpy(copy.get() + at, all.data() + 2 * at + (odd ? size : 0), size);
  }
  return copy;
}

// Where it lies, if each row is aligned.
ConstTensorView SafetensorsWeightSource::rows_of_turns(Entry& entry, int64_t index) const {
  const std::span<const std::byte> all = entry.tensors.front()->bytes;
  const size_t size = all.size() / static_cast<size_t>(entry.shape[0]);
  const auto matrix = all.subspan(static_cast<size_t>(index) * size, size);
  const Shape shape{entry.shape[1], entry.shape[2]};
  const int64_t row = *row_bytes(dtype_of(entry), shape[1]);
  const std::byte* const first = matrix.data() + (entry.half == Half::kOddRows ? row : 0);
  if (is_aligned(first) && row % static_cast<int64_t>(kAlignment) == 0) {
    return {first, dtype_of(entry), shape, 2 * row};
  }
  const std::lock_guard lock(mutex_);
  auto& copy = entry.copies[index];
  if (copy == nullptr) copy = each_second(entry, matrix);
  return {copy.get(), dtype_of(entry), shape};
}

void SafetensorsWeightSource::release(const ConstTensorView& view) const {
  for (const auto& file : files_) {
    if (!inside(file->bytes(), view.data)) continue;
    file->release({view.data, static_cast<size_t>(*tensor_bytes(view.dtype, view.shape))});
    return;
  }
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    std::erase_if(entry.copies, [&](const auto& copy) { return copy.second.get() == view.data; });
  }
}

void SafetensorsWeightSource::release_bytes(std::span<const std::byte> bytes) const {
  for (const auto& file : files_) {
    if (inside(file->bytes(), bytes.data())) return file->release(bytes);
  }
}

void SafetensorsWeightSource::release_rows(const ConstTensorView& view, int64_t first,
                                           int64_t last) const {
  for (const auto& file : files_) {
    if (!inside(file->bytes(), view.data)) continue;
    file->release({view.row(first), static_cast<size_t>(view.row(last) - view.row(first))});
    return;
  }
}

int64_t SafetensorsWeightSource::file_bytes() const {
  size_t bytes = 0;
  for (const auto& file : files_) bytes += file->bytes().size();
  return static_cast<int64_t>(bytes);
}

uint64_t SafetensorsWeightSource::content_sample() const {
  std::vector<std::string> paths;
  for (const auto& file : files_) paths.push_back(file->name());
  // What the numbers mean: rotations, norms, windows.
  if (!paths.empty()) {
    paths.push_back(std::filesystem::path(paths.front()).parent_path() / "config.json");
  }
  return files_sample(paths);
}

}  // namespace headrace
