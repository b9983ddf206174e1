// Writes safetensors files for tests and fuzzing: valid ones, and any header over any data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace {

// Length, header, data: nothing is checked.
std::string safetensors_bytes(std::string_view header, std::string_view data);

class SafetensorsBuilder {
 public:
  // `data` is the tensor's bytes; tensors lie in the file in the order in which they are added.
  SafetensorsBuilder& add(std::string name, std::string_view dtype, std::vector<int64_t> shape,
                          std::string data);
  SafetensorsBuilder& add_f32(std::string name, std::vector<int64_t> shape,
                              std::span<const float> values);
  SafetensorsBuilder& metadata(std::string key, std::string value);
  // The header is padded with spaces to a multiple of 8 bytes, as the reference writer does.
  std::string build() const;

 private:
  struct Tensor {
    std::string name, dtype;
    std::vector<int64_t> shape;
    std::string data;
  };
  std::vector<Tensor> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace headrace
