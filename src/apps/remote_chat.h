// A chat's backend: any server that speaks OpenAI's chat completions, over HTTP.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/chat_backend.h"
#include "server/http_client.h"

namespace headrace {

struct RemoteChatOptions {
  std::string url;      // http://HOST[:PORT][/v1]
  std::string api_key;  // empty: none is sent
  std::string model;    // empty: the first that the server lists
};

class RemoteChat final : public ChatBackend {
 public:
  // Asks which models there are. kInvalidArgument for what is no URL, kUnavailable where nobody
  // answers.
  static Result<std::unique_ptr<RemoteChat>> connect(const RemoteChatOptions& options);

  std::string title() const override;
  Result<std::unique_ptr<ChatAnswer>> answer(const Json& messages,
                                             const ChatSampling& sampling) override;
  Result<int64_t> count_tokens(const Json& messages) override;
  int64_t context_tokens() const override { return 0; }
  Result<std::vector<std::string>> models() override;
  Status use_model(const std::string& name) override;
  void cancel_request() override { client_->cancel(); }

 private:
  RemoteChat(std::unique_ptr<HttpClient> client, std::string base_path);

  const std::unique_ptr<HttpClient> client_;
  const std::string base_path_;  // "/v1"
  std::string model_;
};

// The body of a request. What nobody named is left to the server.
Json chat_request_body(const std::string& model, const Json& messages,
                       const ChatSampling& sampling);

// What a server's refusal says, as one line that is safe to show: the message in its JSON, else
// the first line of its text.
std::string refusal_text(std::string_view body);

}  // namespace headrace
