// Fuzzes what reads Hugging Face weights: the header of a safetensors file, the source over it,
// with every method of quantisation, and dequantisation of every tensor; or, for input that starts
// with '{', an index of shards.
//
// The mutator knows where the format keeps its numbers: half of its mutations replace a number of
// the header, or the header's length, by one that has broken readers before, and keep the length
// true; the other half are libFuzzer's own.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tensor/quantised_row.h"
#include "weights/safetensors_index.h"
#include "weights/safetensors_source.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace headrace {
namespace {

constexpr size_t kLengthBytes = 8;

void read_tensor(const WeightSource& source, std::string_view name, std::string_view whole) {
  const auto info = source.info(name);
  CHECK(info.has_value() && info->bytes <= static_cast<int64_t>(whole.size()));
  const auto view = source.get(name);
  if (!view.ok()) return;
  const auto bytes = static_cast<size_t>(*tensor_bytes(view->dtype, view->shape));
  std::vector<float> values(static_cast<size_t>(*view->shape.elements()));
  dequantise_row(view->dtype, {view->data, bytes}, values);
  source.release(*view);
}

void read_tensors(const std::shared_ptr<const SafetensorsFile>& file,
                  const SafetensorsOptions& options, std::string_view input) {
  const auto source = SafetensorsWeightSource::create({file}, "fuzz", options);
  if (!source.ok()) return;
  for (const std::string_view name : (*source)->names()) read_tensor(**source, name, input);
}

void read_file(std::string_view input) {
  const auto bytes = std::as_bytes(std::span(input.data(), input.size()));
  const auto file = SafetensorsFile::from_memory(bytes, "fuzz.safetensors");
  if (!file.ok()) return;
  size_t tiled = 0;
  for (const SafetensorsTensor& tensor : (*file)->plan().tensors) {
    CHECK((*file)->find(tensor.name) == &tensor);
    tiled += tensor.bytes.size();
  }
  CHECK(tiled <= input.size());
  SafetensorsOptions options{.names = llama_hf_names()};
  read_tensors(*file, options, input);
  for (const HubMethod method : {HubMethod::kGptq, HubMethod::kAwq, HubMethod::kCompressedTensors,
                                 HubMethod::kModelOpt, HubMethod::kFp8}) {
    options.quantisation = HubQuantisation{
        .method = method, .bits = 4, .zeros_less_one = true, .block_rows = 2, .block_columns = 32};
    read_tensors(*file, options, input);
  }
}

void read_index(std::string_view input) {
  const auto shards = parse_safetensors_index(input, "fuzz.json");
  if (!shards.ok()) return;
  for (const auto& [shard, tensors] : *shards) {
    CHECK(shard.find('/') == std::string::npos && !tensors.empty());
  }
}

// ---- mutation ---------------------------------------------------------------------------------

std::string hurtful_number(Rng& rng) {
  constexpr std::array<const char*, 16> kNumbers = {"0",
                                                    "1",
                                                    "-1",
                                                    "2",
                                                    "4",
                                                    "8",
                                                    "1e3",
                                                    "0.5",
                                                    "4294967295",
                                                    "4294967296",
                                                    "4611686018427387904",
                                                    "9223372036854775807",
                                                    "9223372036854775808",
                                                    "18446744073709551608",
                                                    "18446744073709551615",
                                                    "99999999999999999999"};
  return rng.below(3) == 0 ? std::to_string(rng.below(64)) : kNumbers[rng.below(kNumbers.size())];
}

// Replaces one number of the header.
void replace_number(std::string& header, Rng& rng) {
  std::vector<std::pair<size_t, size_t>> numbers;  // position, length
  for (size_t i = 0; i < header.size(); ++i) {
    size_t end = i;
    while (end < header.size() && header[end] >= '0' && header[end] <= '9') ++end;
    if (end > i) numbers.emplace_back(i, end - i), i = end;
  }
  if (numbers.empty()) return;
  const auto [at, length] = numbers[rng.below(numbers.size())];
  header.replace(at, length, hurtful_number(rng));
}

std::string mutated(std::string_view input, Rng& rng) {
  uint64_t length = 0;
  std::memcpy(&length, input.data(), kLengthBytes);
  length = std::min<uint64_t>(length, input.size() - kLengthBytes);
  std::string header(input.substr(kLengthBytes, length));
  const std::string_view data = input.substr(kLengthBytes + length);
  if (rng.below(8) != 0) {
    replace_number(header, rng);
    length = header.size();
  } else {
    length ^= uint64_t{1} << rng.below(64);
  }
  std::string file(kLengthBytes, '\0');
  std::memcpy(file.data(), &length, kLengthBytes);
  return file.append(header).append(data);
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with('{')) {
    headrace::read_index(input);
  } else {
    headrace::read_file(input);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  headrace::Rng rng(seed);
  if (size < headrace::kLengthBytes || data[0] == '{' || rng.below(2) == 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const std::string out =
      headrace::mutated({reinterpret_cast<const char*>(data), size}, rng).substr(0, max_size);
  std::memcpy(data, out.data(), out.size());
  return out.size();
}
