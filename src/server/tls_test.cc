#include "server/tls_context.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "server/server_fixture.h"

namespace headrace::tls_test {
namespace {

using namespace std::chrono_literals;

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

struct Identity {
  Owned<EVP_PKEY> key{nullptr, EVP_PKEY_free};
  Owned<X509> certificate{nullptr, X509_free};
};

// A certificate of a new key, signed by `issuer`; by itself where there is none.
Identity make_identity(const char* name, long serial, const Identity* issuer = nullptr) {
  Identity made;
  made.key.reset(EVP_EC_gen("P-256"));
  made.certificate.reset(X509_new());
  X509* certificate = made.certificate.get();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, made.key.get());
  X509_NAME* subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  const Identity& signer = issuer != nullptr ? *issuer : made;
  X509_set_issuer_name(certificate, X509_get_subject_name(signer.certificate.get()));
  if (issuer == nullptr) {
    const Owned<X509_EXTENSION> authority(
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE"),
        X509_EXTENSION_free);
    X509_add_ext(certificate, authority.get(), -1);
  }
  CHECK(X509_sign(certificate, signer.key.get(), EVP_sha256()) > 0);
  return made;
}

// A folder of PEM files that goes with the test.
struct PemFolder {
  PemFolder() {
    char name[] = "/tmp/headrace_tls_XXXXXX";
    CHECK(mkdtemp(name) != nullptr);
    folder = name;
  }
  ~PemFolder() { std::filesystem::remove_all(folder); }
  std::string path(const char* name) const { return folder + "/" + name; }

  void write(const Identity& identity, const char* password = nullptr) const {
    write_certificate(identity, "cert.pem");
    FILE* file = std::fopen(path("key.pem").c_str(), "w");
    CHECK(PEM_write_PrivateKey(file, identity.key.get(), password ? EVP_aes_128_cbc() : nullptr,
                               nullptr, 0, nullptr, const_cast<char*>(password)) == 1);
    std::fclose(file);
  }
  void write_certificate(const Identity& identity, const char* name) const {
    FILE* file = std::fopen(path(name).c_str(), "w");
    CHECK(PEM_write_X509(file, identity.certificate.get()) == 1);
    std::fclose(file);
  }
  TlsOptions options() const {
    return {.certificate_file = path("cert.pem"), .key_file = path("key.pem")};
  }
  ServerOptions server() const {
    ServerOptions options;
    options.tls = this->options();
    return options;
  }
  std::string folder;
};

struct TlsClientOptions {
  int version_max = 0;                 // 0: the newest
  const Identity* identity = nullptr;  // its own certificate
  int receive_buffer_bytes = 0;
};

// A blocking client that takes any certificate.
class TlsClient {
 public:
  explicit TlsClient(uint16_t port, TlsClientOptions options = {}) {
    std::signal(SIGPIPE, SIG_IGN);  // of this client's own writes
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    const timeval patience{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (options.receive_buffer_bytes > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &options.receive_buffer_bytes, sizeof(int));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    SSL_CTX_set_security_level(context_.get(), 0);  // else it would not even offer old versions
    if (options.version_max != 0) {
      SSL_CTX_set_max_proto_version(context_.get(), options.version_max);
      SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    }
    if (options.identity != nullptr) {
      SSL_CTX_use_certificate(context_.get(), options.identity->certificate.get());
      SSL_CTX_use_PrivateKey(context_.get(), options.identity->key.get());
    }
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), fd_);
    connected_ = SSL_connect(ssl_.get()) == 1;
    ERR_clear_error();
  }
  ~TlsClient() { ::close(fd_); }

  bool connected() const { return connected_; }
  long serial() const {
    const Owned<X509> certificate(SSL_get1_peer_certificate(ssl_.get()), X509_free);
    return ASN1_INTEGER_get(X509_get_serialNumber(certificate.get()));
  }
  std::string_view version() const { return SSL_get_version(ssl_.get()); }
  bool send(std::string_view bytes) {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
  }
  // All that comes until `end` does, or the connection's end.
  std::string read_until(std::string_view end) {
    std::string text;
    char chunk[4096];
    while (text.find(end) == text.npos) {
      const int count = SSL_read(ssl_.get(), chunk, sizeof chunk);
      if (count <= 0) break;
      text.append(chunk, static_cast<size_t>(count));
    }
    ERR_clear_error();
    return text;
  }
  // What answers GET /ping, with its head; "" where nothing does.
  std::string ping() {
    if (!connected_ || !send("GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")) return "";
    return read_until("}");
  }
  // Whether the other side has said that it ends the connection.
  bool was_told_the_end() const {
    return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
  }

 private:
  int fd_ = -1;
  Owned<SSL_CTX> context_{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  Owned<SSL> ssl_{nullptr, SSL_free};
  bool connected_ = false;
};

constexpr std::string_view kPong = "HTTP/1.1 200 OK\r\n";

TEST(Tls, AnswersAndStreamsAreServed) {
  PemFolder files;
  files.write(make_identity("server", 1));
  ServerFixture f({}, "hello world", files.server());
  TlsClient client(f.server->port());
  ASSERT_TRUE(client.connected());
  EXPECT_EQ(client.version(), "TLSv1.3");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(client.ping().starts_with(kPong)) << i;  // kept alive
  client.send(
      fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: "
                  "{}\r\n\r\n{}",
                  kChatPath, kChatStream.size(), kChatStream));
  const std::string stream = client.read_until("no such end");
  EXPECT_NE(stream.find(R"("delta":{"content":"h"})"), stream.npos) << stream;
  EXPECT_TRUE(stream.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n")) << stream;
  EXPECT_TRUE(client.was_told_the_end());
}

TEST(Tls, OldVersionsAreNotSpoken) {
  PemFolder files;
  files.write(make_identity("server", 1));
  ServerFixture f({}, "x", files.server());
  EXPECT_FALSE(TlsClient(f.server->port(), {.version_max = TLS1_1_VERSION}).connected());
  TlsClient client(f.server->port(), {.version_max = TLS1_2_VERSION});
  EXPECT_EQ(client.version(), "TLSv1.2");
  EXPECT_TRUE(client.ping().starts_with(kPong));
}

TEST(Tls, WhoSpeaksPlainHttpIsToldSo) {
  PemFolder files;
  files.write(make_identity("server", 1));
  ServerFixture f({}, "x", files.server());
  TestClient client(f.server->port());
  const auto response = client.get("/v1/models");
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 400);
  EXPECT_NE(response->body.find("https://"), std::string::npos) << response->body;
  EXPECT_TRUE(client.wait_for_close(10));
}

TEST(Tls, AHandshakeHasTheTimeOfAHead) {
  PemFolder files;
  files.write(make_identity("server", 1));
  ServerOptions options = files.server();
  options.http.head_seconds_max = 0.3;
  ServerFixture f({}, "x", options);
  TestClient silent(f.server->port()), half(f.server->port());
  half.send("\x16\x03\x01\x02");  // the begin of a ClientHello
  EXPECT_TRUE(silent.wait_for_close(10));
  EXPECT_TRUE(half.wait_for_close(10));
  TlsClient late(f.server->port());  // its head never comes
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(late.read_until("no such end"), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 8s);  // the client gives up after ten
}

TEST(Tls, ConnectionsOfAnAddressAreBounded) {
  PemFolder files;
  files.write(make_identity("server", 1));
  ServerOptions options = files.server();
  options.http.connections_per_address_max = 1;
  ServerFixture f({}, "x", options);
  TlsClient first(f.server->port());
  EXPECT_TRUE(first.ping().starts_with(kPong));
  EXPECT_EQ(TlsClient(f.server->port()).ping(), "");
  EXPECT_TRUE(first.ping().starts_with(kPong));
}

TEST(Tls, ASlowReaderGetsEverything) {
  PemFolder files;
  files.write(make_identity("server", 1));
  ServerFixture f({.max_model_len = 1 << 20}, "", files.server());
  TlsClient client(f.server->port(), {.receive_buffer_bytes = 4096});
  const std::string body =
      R"({"prompt":[5],"max_tokens":3000,"stream":true,"return_token_ids":true})";
  client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                          kCompletions, body.size(), body));
  std::this_thread::sleep_for(300ms);
  const std::string answer = client.read_until("data: [DONE]");
  size_t events = 0;
  for (size_t at = 0; (at = answer.find("\"token_ids\":[", at)) != answer.npos; ++at) ++events;
  EXPECT_TRUE(answer.find("data: [DONE]") != answer.npos);
  EXPECT_GE(events, 1000u);
  EXPECT_TRUE(eventually([&] { return f.model.engine->stats().scheduler.running == 0; }));
}

TEST(Tls, ClientsShowACertificateWhereTheyMust) {
  PemFolder files;
  const Identity authority = make_identity("authority", 1);
  const Identity stranger = make_identity("stranger", 2);
  const Identity friendly = make_identity("client", 3, &authority);
  files.write(make_identity("server", 4));
  files.write_certificate(authority, "ca.pem");
  ServerOptions options = files.server();
  options.tls.ca_file = files.path("ca.pem");
  for (const auto verify : {ClientCertificates::kRequired, ClientCertificates::kOptional}) {
    options.tls.client_certificates = verify;
    ServerFixture f({}, "x", options);
    const bool optional = verify == ClientCertificates::kOptional;
    EXPECT_EQ(TlsClient(f.server->port()).ping() != "", optional);
    EXPECT_EQ(TlsClient(f.server->port(), {.identity = &stranger}).ping(), "");
    EXPECT_NE(TlsClient(f.server->port(), {.identity = &friendly}).ping(), "");
  }
}

TEST(Tls, NewCertificatesAreShownToNewConnections) {
  PemFolder files;
  files.write(make_identity("server", 7));
  ServerFixture f({}, "x", files.server());
  TlsClient before(f.server->port());
  EXPECT_EQ(before.serial(), 7);

  files.write(make_identity("server", 8));
  f.server->reload_certificates();
  EXPECT_EQ(TlsClient(f.server->port()).serial(), 8);

  std::ofstream(files.path("key.pem")) << "half a file";
  f.server->reload_certificates();
  EXPECT_EQ(TlsClient(f.server->port()).serial(), 8);
  EXPECT_TRUE(before.ping().starts_with(kPong));
}

TEST(Tls, ChangedFilesAreNoticed) {
  PemFolder files;
  files.write(make_identity("server", 7));
  ServerFixture f({}, "x", files.server());
  files.write(make_identity("server", 9));
  EXPECT_TRUE(eventually([&] { return TlsClient(f.server->port()).serial() == 9; }, 20));
}

TEST(TlsContext, FilesThatCannotBeUsedAreNamed) {
  PemFolder files;
  const Identity identity = make_identity("server", 1);
  const auto message = [](const TlsOptions& options) {
    const auto loaded = TlsContext::load(options);
    return loaded.ok() ? "" : loaded.status().message();
  };
  files.write(identity);
  EXPECT_EQ(message(files.options()), "");
  const std::string cert = files.path("cert.pem"), key = files.path("key.pem");
  EXPECT_EQ(message({.certificate_file = files.path("none"), .key_file = key}),
            "--ssl-certfile " + files.path("none") + ": No such file or directory");
  EXPECT_EQ(message({.certificate_file = cert, .key_file = files.path("none")}),
            "--ssl-keyfile " + files.path("none") + ": No such file or directory");
  EXPECT_TRUE(message({.certificate_file = key, .key_file = key})
                  .starts_with("--ssl-certfile " + key + ": no certificate in PEM"));
  EXPECT_TRUE(message({.certificate_file = cert, .key_file = cert})
                  .starts_with("--ssl-keyfile " + cert + ": no private key in PEM"));
  EXPECT_NE(message({.certificate_file = cert}).find("name its file with --ssl-keyfile"),
            std::string::npos);
  TlsOptions clients = files.options();
  clients.client_certificates = ClientCertificates::kRequired;
  clients.ca_file = key;
  EXPECT_TRUE(message(clients).starts_with("--ssl-ca-certs " + key + ": no certificates in PEM"));
  files.write_certificate(make_identity("other", 2), "cert.pem");
  EXPECT_EQ(message(files.options()),
            "--ssl-keyfile " + key + ": the key is not that of the certificate " + cert);
  files.write(identity, "secret");
  EXPECT_EQ(
      message(files.options()),
      "--ssl-keyfile " + key + ": the key has a password: store it without one (openssl pkey)");
}

}  // namespace
}  // namespace headrace::tls_test
