#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "server/http_post.h"
#include "server/trace_context.h"
#include "server/trace_exporter.h"

namespace headrace::trace_test {
namespace {

const std::string kTrace = "0af7651916cd43dd8448eb211c80319c";
const std::string kParent = "b7ad6b7169203331";

TraceContext context_of(const std::string& parent, const std::string& state = "") {
  HttpRequest request;
  if (!parent.empty()) request.headers.push_back({"traceparent", parent});
  if (!state.empty()) request.headers.push_back({"tracestate", state});
  return trace_context_of(request);
}

TEST(TraceContext, IsTheCallers) {
  const TraceContext found = context_of("00-" + kTrace + "-" + kParent + "-01", "a=b,c=d");
  EXPECT_EQ(found.trace_id, kTrace);
  EXPECT_EQ(found.parent_id, kParent);
  EXPECT_EQ(found.state, "a=b,c=d");
  EXPECT_TRUE(found.sampled);
  EXPECT_FALSE(context_of("00-" + kTrace + "-" + kParent + "-00").sampled);
  EXPECT_FALSE(context_of("00-" + kTrace + "-" + kParent + "-fe").sampled);
  EXPECT_TRUE(context_of("00-" + kTrace + "-" + kParent + "-0b").sampled);
  EXPECT_EQ(context_of("cc-" + kTrace + "-" + kParent + "-01-what").parent_id, kParent);
}

TEST(TraceContext, IsNewWhereThereIsNone) {
  const std::string nothing(32, '0');
  for (const std::string& header :
       {std::string(), std::string("00"), "00-" + kTrace + "-" + kParent,
        "00-" + kTrace + "-" + kParent + "-01-", "00-" + kTrace + "-" + kParent + "-01-more",
        "ff-" + kTrace + "-" + kParent + "-01", "00-" + nothing + "-" + kParent + "-01",
        "00-" + kTrace + "-" + nothing.substr(16) + "-01", "00_" + kTrace + "-" + kParent + "-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" + kParent + "-01",
        "cc-" + kTrace + "-" + kParent + "-01.what"}) {
    const TraceContext found = context_of(header, "a=b");
    EXPECT_NE(found.trace_id, kTrace) << header;
    EXPECT_EQ(found.trace_id.size(), 32u) << header;
    EXPECT_EQ(found.parent_id + found.state, "") << header;
    EXPECT_TRUE(found.sampled) << header;
  }
}

TEST(HttpPost, Urls) {
  const auto parts = [](std::string_view url) {
    const Result<HttpTarget> target = parse_http_url(url);
    return target.ok() ? target->host + " " + target->port + " " + target->path
                       : std::string(target.status().message());
  };
  EXPECT_EQ(parts("http://a"), "a 80 /");
  EXPECT_EQ(parts("http://a.b:4318/"), "a.b 4318 /");
  EXPECT_EQ(parts("http://127.0.0.1:4318/v1/traces?x=y"), "127.0.0.1 4318 /v1/traces?x=y");
  EXPECT_EQ(parts("http://[::1]:4318/a"), "::1 4318 /a");
  EXPECT_EQ(parts("http://[::1]"), "::1 80 /");
  for (const char* wrong :
       {"", "a:80", "http://", "http://:80", "http://a:", "http://a:0", "http://a:65536",
        "http://a:8x", "http://a b", "http://a/\r\nb", "ftp://a"}) {
    EXPECT_FALSE(parse_http_url(wrong).ok()) << wrong;
  }
  EXPECT_EQ(parts("https://a"), "a 443 /");
  EXPECT_TRUE(parse_http_url("https://a:4318/v1/traces")->tls);
  EXPECT_FALSE(parse_http_url("http://a:4318/v1/traces")->tls);
  EXPECT_EQ(parse_http_url("grpc://a").status().code(), StatusCode::kUnsupported);
}

TEST(TraceExporter, MessageHasTheFormOfOtlp) {
  Span span;
  span.context = {.trace_id = kTrace, .parent_id = kParent, .state = "", .sampled = true};
  span.name = "llm_request";
  span.begin_unix_ns = 1700000000000000001;
  span.end_unix_ns = 1700000000000000002;
  span.attributes = {{"text", std::string("a")}, {"whole", int64_t{1} << 60}, {"real", 0.5}};
  span.error = "abort";
  const Json json = *parse_json(otlp_json({span, span}, "name"));
  const Json& resource = json.find("resourceSpans")->as_array()[0];
  EXPECT_EQ(write_json(*resource.find("resource")),
            R"({"attributes":[{"key":"service.name","value":{"stringValue":"name"}}]})");
  const Json::Array& spans = resource.find("scopeSpans")->as_array()[0].find("spans")->as_array();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_NE(spans[0].find("spanId")->as_string(), spans[1].find("spanId")->as_string());
  EXPECT_EQ(spans[0].find("startTimeUnixNano")->as_string(), "1700000000000000001");
  EXPECT_EQ(write_json(*spans[0].find("attributes")),
            R"([{"key":"text","value":{"stringValue":"a"}},)"
            R"({"key":"whole","value":{"intValue":"1152921504606846976"}},)"
            R"({"key":"real","value":{"doubleValue":0.5}}])");
  EXPECT_EQ(write_json(*spans[0].find("status")), R"({"code":2,"message":"abort"})");
}

}  // namespace
}  // namespace headrace::trace_test
