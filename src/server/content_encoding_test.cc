#include "server/content_encoding.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <string>

#include <fmt/format.h>

#include "server/server_fixture.h"

namespace headrace::content_encoding_test {
namespace {

std::string unpacked(const std::string& body) {
  z_stream stream{};
  CHECK(inflateInit2(&stream, 15 + 16) == Z_OK);
  std::string text(1 << 20, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
  stream.avail_in = static_cast<uInt>(body.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  CHECK(inflate(&stream, Z_FINISH) == Z_STREAM_END);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return text;
}

constexpr std::string_view kLong =
    R"({"prompt":[5],"max_tokens":400,"temperature":0,"logprobs":1,"seed":1})";

std::string unpacked_zstd(const std::string& body) {
  std::string text(1 << 20, '\0');
  const size_t size = ZSTD_decompress(text.data(), text.size(), body.data(), body.size());
  CHECK(!ZSTD_isError(size));
  text.resize(size);
  return text;
}

TEST(ContentEncoding, WhatAClientAccepts) {
  for (const char* gzip : {"gzip", "gzip, deflate", "br, gzip", "deflate;q=1.0, gzip;q=0.5", "*",
                           "*;q=0.1", "br;q=1, *;q=0.2", "x-gzip", "zstd;q=0.5, gzip",
                           "zstd;q=0, gzip;q=0.001", "zstd;q=0.25, gzip;q=0.3"}) {
    EXPECT_EQ(choose_coding(gzip), ContentCoding::kGzip) << gzip;
  }
  for (const char* zstd : {"zstd", "gzip, deflate, br, zstd", "zstd;q=0.5, gzip;q=0.5", "br, zstd",
                           "*;q=0.5, zstd", "gzip;q=0, zstd;q=0.1", "gzip;q=0.9, zstd;q=1.0"}) {
    EXPECT_EQ(choose_coding(zstd), ContentCoding::kZstd) << zstd;
  }
  for (const char* no : {"", "identity", "br", "gzip;q=0", "gzip; q=0.000, *", "*;q=0", "gzipped",
                         "*, gzip;q=0.0", "zstd;q=0", "zstd;q=nonsense"}) {
    EXPECT_EQ(choose_coding(no), ContentCoding::kIdentity) << no;
  }
}

TEST(ContentEncoding, WholeAnswersAreEncodedWhereAsked) {
  ServerFixture f({}, "hello world");
  TestClient client(f.server->port());
  const auto plain = client.post_text(kCompletions, kLong);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->headers.count("content-encoding"), 0u);
  EXPECT_EQ(plain->headers.at("vary"), "Accept-Encoding");
  const auto encoded = client.post_text(kCompletions, kLong, "Accept-Encoding: gzip, deflate\r\n");
  ASSERT_TRUE(encoded);
  EXPECT_EQ(encoded->headers.at("content-encoding"), "gzip");
  EXPECT_EQ(encoded->headers.at("vary"), "Accept-Encoding");
  EXPECT_LT(encoded->body.size(), plain->body.size() / 2);
  const auto smaller = client.post_text(kCompletions, kLong, "Accept-Encoding: gzip, zstd\r\n");
  ASSERT_TRUE(smaller);
  EXPECT_EQ(smaller->headers.at("content-encoding"), "zstd");
  for (const std::string& body : {unpacked(encoded->body), unpacked_zstd(smaller->body)}) {
    const auto parsed = parse_json(body);
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(write_json(at(choice(*parsed), "text")),
              write_json(at(choice(plain->json()), "text")));
  }
}

TEST(ContentEncoding, ShortAnswersAndStreamsAreNot) {
  ServerFixture f({}, "hello world");
  TestClient client(f.server->port());
  const auto brief = client.get("/health", "Accept-Encoding: gzip\r\n");
  EXPECT_EQ(brief->headers.count("content-encoding"), 0u);
  EXPECT_EQ(brief->body, R"({"status":"ok"})");
  const std::string stream = R"({"prompt":[5],"max_tokens":400,"stream":true})";
  const auto streamed = client.post_text(kCompletions, stream, "Accept-Encoding: gzip\r\n");
  EXPECT_EQ(streamed->headers.count("content-encoding"), 0u);
  EXPECT_EQ(streamed->events().back(), "[DONE]");
}

// An answer of megabytes would hold up the streams of the same thread.
TEST(ContentEncoding, VeryLongBodiesStayAsTheyAre) {
  HttpResponse response;
  response.body.assign(kEncodedBytesMax + 1, 'a');
  encode_content(ContentCoding::kGzip, response);
  EXPECT_EQ(response.body.size(), kEncodedBytesMax + 1);
  EXPECT_TRUE(response.headers.empty());
}

TEST(ContentEncoding, WhatGetsNoSmallerStaysAsItIs) {
  for (const ContentCoding coding : {ContentCoding::kGzip, ContentCoding::kZstd}) {
    HttpResponse response;
    uint64_t state = 1;
    for (int i = 0; i < 4096; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      response.body.push_back(static_cast<char>(state >> 56));
    }
    const std::string before = response.body;
    encode_content(coding, response);
    EXPECT_EQ(response.body, before);
    ASSERT_EQ(response.headers.size(), 1u);
    EXPECT_EQ(response.headers[0].name, "Vary");
  }
}

}  // namespace
}  // namespace headrace::content_encoding_test
