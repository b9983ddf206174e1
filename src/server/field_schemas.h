// JSON schemas of fields whose readers check more than a type and a range. They say what is taken;
// that a schema is no looser than its reader matters less than that it refuses nothing good.
#pragma once

namespace headrace {

inline constexpr char kTextSchema[] = R"({"type": "string"})";
inline constexpr char kObjectSchema[] = R"({"type": "object"})";
inline constexpr char kTokenIdsSchema[] =
    R"({"type": "array", "items": {"type": "integer", "minimum": 0}})";
inline constexpr char kSomeTokenIdsSchema[] =
    R"({"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}})";
inline constexpr char kBadWordsSchema[] = R"({
  "type": "array", "maxItems": 1024, "items": {"type": "string", "minLength": 1, "maxLength": 256}})";
inline constexpr char kDryBreakersSchema[] = R"({
  "type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1, "maxLength": 256}})";
inline constexpr char kReasoningSchema[] = R"({
  "type": "object",
  "properties": {
    "effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max"]},
    "max_tokens": {"type": "integer", "minimum": 0}, "exclude": {"type": "boolean"}}})";
inline constexpr char kThinkingSchema[] = R"({
  "type": "object", "required": ["type"],
  "properties": {"type": {"enum": ["enabled", "disabled", "adaptive"]},
                 "budget_tokens": {"type": "integer", "minimum": 1}}})";
inline constexpr char kLogitBiasSchema[] = R"({
  "type": "object", "propertyNames": {"pattern": "^[0-9]+$"},
  "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}})";
inline constexpr char kChoiceCountSchema[] = R"({"type": "integer", "minimum": 1, "maximum": 128})";
inline constexpr char kBeamCountSchema[] = R"({"type": "integer", "minimum": 1, "maximum": 64})";
inline constexpr char kEarlyStoppingSchema[] = R"({"enum": [true, false, "never"]})";
inline constexpr char kLogprobCountSchema[] = R"({"type": "integer", "minimum": 0})";
inline constexpr char kStopSchema[] = R"({"anyOf": [
  {"type": "string", "minLength": 1, "maxLength": 256},
  {"type": "array", "maxItems": 16, "items": {"type": "string", "minLength": 1, "maxLength": 256}}]})";
inline constexpr char kStreamOptionsSchema[] = R"({
  "type": "object",
  "properties": {"include_usage": {"type": "boolean"}, "continuous_usage_stats": {"type": "boolean"}}})";
inline constexpr char kLoopSchema[] = R"({
  "type": "object",
  "properties": {"max_pattern_size": {"type": "integer", "minimum": 0, "maximum": 1024},
                 "min_pattern_size": {"type": "integer", "minimum": 0, "maximum": 1024},
                 "min_count": {"type": "integer", "minimum": 0}}})";
inline constexpr char kServiceTierSchema[] =
    R"({"enum": ["auto", "default", "flex", "priority", "scale"]})";
inline constexpr char kRetentionSchema[] = R"({"enum": ["in_memory", "24h"]})";
inline constexpr char kEffortSchema[] =
    R"({"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max"]})";
inline constexpr char kPromptSchema[] = R"({"anyOf": [
  {"type": "string"},
  {"type": "array", "minItems": 1, "maxItems": 256, "items": {"type": "string"}},
  {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
  {"type": "array", "minItems": 1, "maxItems": 256,
   "items": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}}]})";
inline constexpr char kMessagesSchema[] = R"({
  "type": "array", "minItems": 1,
  "items": {
    "type": "object", "required": ["role"],
    "properties": {
      "role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]},
      "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]}}}})";
inline constexpr char kToolsSchema[] = R"({
  "type": "array",
  "items": {
    "type": "object", "required": ["type", "function"],
    "properties": {
      "type": {"const": "function"},
      "function": {
        "type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "description": {"type": "string"},
                       "parameters": {"type": "object"}}}}}})";
inline constexpr char kComparedTextSchema[] = R"({"anyOf": [
  {"type": "string"},
  {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}]})";
inline constexpr char kComparedTextsSchema[] = R"({"anyOf": [
  {"type": "string"},
  {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
  {"type": "array", "minItems": 1, "maxItems": 2048, "items": {"anyOf": [
    {"type": "string"},
    {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}]}}]})";
inline constexpr char kDocumentsSchema[] = R"({"type": "array", "items": {"type": "object"}})";
inline constexpr char kTemplateKwargsSchema[] = R"({"type": "object", "maxProperties": 64})";

}  // namespace headrace
