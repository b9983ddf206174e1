#include "weights/safetensors_fixture.h"

#include <cstring>

#include "base/json.h"

namespace headrace {

std::string safetensors_bytes(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(header).append(data);
}

SafetensorsBuilder& SafetensorsBuilder::add(std::string name, std::string_view dtype,
                                            std::vector<int64_t> shape, std::string data) {
  tensors_.push_back({std::move(name), std::string(dtype), std::move(shape), std::move(data)});
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::add_f32(std::string name, std::vector<int64_t> shape,
                                                std::span<const float> values) {
  std::string data(values.size_bytes(), '\0');
  if (!values.empty()) std::memcpy(data.data(), values.data(), values.size_bytes());
  return add(std::move(name), "F32", std::move(shape), std::move(data));
}

SafetensorsBuilder& SafetensorsBuilder::metadata(std::string key, std::string value) {
  metadata_.emplace_back(std::move(key), std::move(value));
  return *this;
}

std::string SafetensorsBuilder::build() const {
  Json header = Json::object();
  if (!metadata_.empty()) {
    Json metadata = Json::object();
    for (const auto& [key, value] : metadata_) metadata.set(key, value);
    header.set("__metadata__", std::move(metadata));
  }
  std::string data;
  for (const Tensor& tensor : tensors_) {
    Json shape = Json::array();
    for (const int64_t dim : tensor.shape) shape.push(dim);
    Json offsets = Json::array();
    offsets.push(data.size()).push(data.size() + tensor.data.size());
    Json entry = Json::object();
    entry.set("dtype", tensor.dtype).set("shape", std::move(shape));
    header.set(tensor.name, std::move(entry.set("data_offsets", std::move(offsets))));
    data += tensor.data;
  }
  std::string text = write_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return safetensors_bytes(text, data);
}

}  // namespace headrace
