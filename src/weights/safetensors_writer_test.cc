#include "weights/safetensors_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "weights/dummy_weights.h"
#include "weights/safetensors.h"

namespace headrace::safetensors_writer_test {
namespace {

std::string test_path(const char* name) { return testing::TempDir() + name; }

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const std::vector<DummyTensor> tensors{{"blk.0.attn_q.weight", Shape{6, 32}},
                                         {"output_norm.weight", Shape{7}}};
  const std::string path = test_path("writer.safetensors");
  ThreadPool pool(2);
  {
    const std::vector<SafetensorsEntry> entries{{"q", DType::kBF16, tensors[0].shape},
                                                {"norm", DType::kF32, tensors[1].shape}};
    auto writer = SafetensorsWriter::create(path, entries);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (size_t i = 0; i < tensors.size(); ++i) {
      fill_dummy_tensor(pool, /*seed=*/3, tensors[i], /*offset=*/i == 1 ? 1.0f : 0.0f,
                        entries[i].dtype, (*writer)->data(i).data());
    }
  }
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->plan().tensors.size(), 2u);
  const SafetensorsTensor* q = (*file)->find("q");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->shape, tensors[0].shape);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(q->bytes.data()) % 64, 0u);
  const auto source = std::move(
      DummyWeightSource::create(tensors, {.dtype = DType::kBF16, .seed = 3, .threads = 1}).value());
  const ConstTensorView view = source->get("blk.0.attn_q.weight").value();
  EXPECT_EQ(std::memcmp(q->bytes.data(), view.data, q->bytes.size()), 0);
  const SafetensorsTensor* norm = (*file)->find("norm");
  ASSERT_NE(norm, nullptr);
  for (int64_t i = 0; i < norm->elements; ++i) {
    float value = 0;
    std::memcpy(&value, norm->bytes.data() + 4 * i, 4);
    EXPECT_NEAR(value, dummy_weight(3, "output_norm.weight", i), 1e-7f) << i;
  }
  std::filesystem::remove(path);
}

TEST(SafetensorsWriter, NamesWhatIsWrong) {
  const std::vector<SafetensorsEntry> quantised{{"q", DType::kQ4_0, Shape{2, 32}}};
  const auto no_type = SafetensorsWriter::create(test_path("type.safetensors"), quantised);
  EXPECT_NE(no_type.status().message().find("tensor q: safetensors files hold no"),
            std::string::npos)
      << no_type.status().message();
  const std::vector<SafetensorsEntry> plain{{"q", DType::kF16, Shape{2, 32}}};
  const auto no_folder = SafetensorsWriter::create("/no/such/folder/a.safetensors", plain);
  EXPECT_NE(no_folder.status().message().find("/no/such/folder/a.safetensors: cannot be made"),
            std::string::npos)
      << no_folder.status().message();
}

}  // namespace
}  // namespace headrace::safetensors_writer_test
