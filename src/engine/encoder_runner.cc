#include "engine/encoder_runner.h"

#include <algorithm>
#include <cstring>

#include "tensor/communicator.h"
#include "tensor/workspace.h"

namespace headrace {
namespace {

class EncoderRunner final : public EmbeddingRunner {
 public:
  EncoderRunner(Device& device, const Encoder& encoder, Buffer hidden, Buffer workspace,
                const OpHooks* hooks)
      : device_(device),
        encoder_(encoder),
        stream_(device.create_stream()),
        hidden_(std::move(hidden)),
        workspace_(std::move(workspace)),
        hooks_(hooks) {}

  int32_t dimensions() const override { return encoder_.config().dimensions(); }
  int32_t vocab_size() const override { return encoder_.config().vocab; }
  int32_t length_max() const override { return encoder_.config().length_max; }

  bool normalises() const override { return encoder_.config().normalise; }
  const ClassifierHead& head() const override { return encoder_.config().head; }

  void prepare_thread() override {
    device_.pool().bind_caller();
    flush_denormals_on_this_thread();
  }

  bool run(const EncoderBatch& batch, std::span<float> vectors,
           const std::function<bool()>& go_on) override {
    OpContext context{device_, *stream_, workspace_, mesh_, hooks_};
    const TensorView hidden(
        hidden_.data(), DType::kF32,
        Shape{static_cast<int64_t>(batch.tokens.size()), encoder_.config().hidden});  // [T, D]
    if (!encoder_.encode(context, batch, hidden, go_on)) return false;
    const auto count = static_cast<int64_t>(batch.sequences.size());
    const TensorView out(reinterpret_cast<std::byte*>(vectors.data()), DType::kF32,
                         Shape{count, dimensions()});  // [S, dimensions]
    if (head()) {
      encoder_.classify(context, hidden, batch.sequences, out);
    } else {
      encoder_.pool(context, hidden, batch.sequences, out);
    }
    return true;
  }

 private:
  Device& device_;
  const Encoder& encoder_;
  const std::unique_ptr<Stream> stream_;
  const Buffer hidden_;  // [pass_tokens_max, D]
  Workspace workspace_;
  SingleRank one_;
  Mesh mesh_{&one_, &one_, &one_};
  const OpHooks* const hooks_;
};

}  // namespace

Result<std::unique_ptr<EmbeddingRunner>> create_encoder_runner(Device& device,
                                                               const Encoder& encoder,
                                                               int32_t pass_tokens_max,
                                                               const OpHooks* hooks) {
  const int64_t hidden_bytes =
      int64_t{pass_tokens_max} * encoder.config().hidden * int64_t{sizeof(float)};
  HR_ASSIGN_OR_RETURN(Buffer hidden, device.allocate(hidden_bytes));
  HR_ASSIGN_OR_RETURN(Buffer workspace, device.allocate(encoder.workspace_bytes(
                                            pass_tokens_max, device.pool().thread_count())));
  return std::unique_ptr<EmbeddingRunner>(std::make_unique<EncoderRunner>(
      device, encoder, std::move(hidden), std::move(workspace), hooks));
}

}  // namespace headrace
