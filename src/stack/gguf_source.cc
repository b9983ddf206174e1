#include "stack/gguf_source.h"

#include <fmt/format.h>

#include "stack/gguf_vocab.h"
#include "weights/generation_config.h"
#include "weights/gguf.h"

namespace headrace {
namespace {

class GgufSource final : public ModelSource {
 public:
  explicit GgufSource(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {}

  SourceKind kind() const override { return SourceKind::kGguf; }
  const std::string& path() const override { return file_->name(); }

  SourceTitle title() const override {
    const GgufPlan& plan = file_->plan();
    const std::string parts =
        file_->part_count() > 1 ? fmt::format(", {} parts", file_->part_count()) : "";
    return {.format = fmt::format("GGUF version {}, {} keys, alignment {}{}", plan.version,
                                  plan.entries.size(), plan.alignment, parts),
            .name = text("general.name"),
            .architecture = text("general.architecture")};
  }

  Result<ModelConfig> config() const override { return model_config_from_gguf(*file_); }

  Result<std::optional<EncoderConfig>> encoder() const override {
    return encoder_config_from_gguf(*file_);
  }

  Result<std::optional<PoolingConfig>> pooling() const override {
    return pooling_config_from_gguf(*file_);
  }

  Result<std::shared_ptr<WeightSource>> weights(HfTensorNames, bool) const override {
    return std::shared_ptr<WeightSource>(std::make_shared<GgufWeightSource>(file_));
  }

  Result<std::optional<Vocab>> vocab() const override {
    if (file_->find("tokenizer.ggml.model") == nullptr) return std::optional<Vocab>();
    HR_ASSIGN_OR_RETURN(Vocab vocab, vocab_from_gguf(*file_, file_));
    return std::optional(std::move(vocab));
  }

  Result<std::string> chat_template() const override {
    HR_ASSIGN_OR_RETURN(const auto text, file_->optional_string("tokenizer.chat_template"));
    return std::string(text.value_or(""));
  }

  Result<SamplingDefaults> sampling() const override { return sampling_defaults_from_gguf(*file_); }

  void release_pages() const override { file_->release_all(); }

 private:
  std::string text(std::string_view key) const {
    const auto value = file_->optional_string(key);
    return value.ok() ? printable(value->value_or("")) : "";
  }

  std::shared_ptr<const GgufFile> file_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> open_gguf_source(const std::string& path) {
  HR_ASSIGN_OR_RETURN(auto file, GgufFile::open(path));
  return std::unique_ptr<ModelSource>(std::make_unique<GgufSource>(std::move(file)));
}

}  // namespace headrace
