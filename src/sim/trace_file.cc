#include "sim/trace_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/rng.h"

namespace headrace {
namespace {

constexpr int32_t kTokensMax = 1 << 24;
constexpr int32_t kPriorityMax = 1 << 20;
constexpr double kSecondsMax = 1e9;  // of arrivals: 30 years
constexpr size_t kNameBytesMax = 256;
constexpr size_t kShownBytesMax = 40;  // of a bad value
// Of prompts whose prefixes are told by hash, and of sessions.
constexpr uint64_t kHashed = 0x686173686564, kSession = 0x73657373696f6e;

// A row as it is read, before its prompt is made of it.
struct TraceRow {
  double arrival_seconds = 0;
  int32_t input = 0, output = 0;
  int32_t max_tokens = 0;  // 0: as many as the output
  std::vector<uint64_t> hashes;
  std::string session;
  TraceRequest rest;  // what is taken as it is
};

// ---- values. False: not one.

bool read_number(std::string_view text, double low, double high, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= low && value <= high;
}

template <class Integer>
bool read_integer(std::string_view text, Integer low, Integer high, Integer& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= low && value <= high;
}

// Days from 1970-01-01 to a date of the Gregorian calendar, by counting from March (so that the
// leap day is a year's last).
int64_t days_since_epoch(int64_t year, int64_t month, int64_t day) {
  year -= month <= 2 ? 1 : 0;
  const int64_t era = year / 400, year_of_era = year % 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int64_t day_of_era = 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

// "2023-11-16 18:15:46.6805900", also with T between and Z or +HH:MM behind.
bool read_time_stamp(std::string_view text, double& seconds) {
  constexpr std::string_view kShape = "dddd-dd-dd dd:dd:";
  if (text.size() < kShape.size() + 2) return false;
  for (size_t i = 0; i < kShape.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    const bool fits =
        kShape[i] == 'd' ? digit : text[i] == kShape[i] || (i == 10 && text[i] == 'T');
    if (!fits) return false;
  }
  const auto number = [&](size_t at, size_t digits) {
    int64_t value = 0;
    for (const char digit : text.substr(at, digits)) value = 10 * value + (digit - '0');
    return value;
  };
  const int64_t month = number(5, 2), day = number(8, 2), hour = number(11, 2),
                minute = number(14, 2);
  if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59) return false;
  std::string_view second = text.substr(kShape.size());
  int64_t zone_minutes = 0;
  if (second.ends_with('Z')) {
    second.remove_suffix(1);
  } else if (const size_t sign = second.find_first_of("+-"); sign != second.npos) {
    int64_t hours = 0, minutes = 0;
    const std::string_view zone = second.substr(sign + 1);
    if (zone.size() != 5 || zone[2] != ':' ||
        !read_integer<int64_t>(zone.substr(0, 2), 0, 23, hours) ||
        !read_integer<int64_t>(zone.substr(3), 0, 59, minutes)) {
      return false;
    }
    zone_minutes = (second[sign] == '-' ? -1 : 1) * (60 * hours + minutes);
    second = second.substr(0, sign);
  }
  double whole = 0;
  if (!read_number(second, 0, 61, whole)) return false;
  const int64_t minutes =
      (days_since_epoch(number(0, 4), month, day) * 24 + hour) * 60 + minute - zone_minutes;
  seconds = static_cast<double>(minutes) * 60 + whole;
  return true;
}

// ---- columns

bool read_arrival(std::string_view text, TraceRow& row) {
  return read_number(text, 0, kSecondsMax, row.arrival_seconds);
}
bool read_milliseconds(std::string_view text, TraceRow& row) {
  if (!read_number(text, 0, kSecondsMax * 1e3, row.arrival_seconds)) return false;
  row.arrival_seconds *= 1e-3;
  return true;
}
bool read_date(std::string_view text, TraceRow& row) {
  return read_time_stamp(text, row.arrival_seconds);
}
bool read_input(std::string_view text, TraceRow& row) {
  return read_integer(text, 1, kTokensMax, row.input);
}
bool read_output(std::string_view text, TraceRow& row) {
  return read_integer(text, 1, kTokensMax, row.output);
}
bool read_max_tokens(std::string_view text, TraceRow& row) {
  return read_integer(text, 1, kTokensMax, row.max_tokens);
}
bool read_hashes(std::string_view text, TraceRow& row) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    uint64_t hash = 0;
    if (!read_integer<uint64_t>(text.substr(0, end), 0, UINT64_MAX, hash)) return false;
    row.hashes.push_back(hash);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}
bool read_session(std::string_view text, TraceRow& row) {
  row.session = text;
  return text.size() <= kNameBytesMax;
}
bool read_tenant(std::string_view text, TraceRow& row) {
  row.rest.tenant = text;
  return text.size() <= kNameBytesMax;
}
bool read_priority(std::string_view text, TraceRow& row) {
  return read_integer(text, -kPriorityMax, kPriorityMax, row.rest.priority);
}
bool read_background(std::string_view text, TraceRow& row) {
  row.rest.background = text == "1" || text == "true";
  return row.rest.background || text == "0" || text == "false";
}

struct TraceColumn {
  std::string_view name;
  std::array<std::string_view, 3> aliases;  // empty ones are none
  std::string_view must_be;
  bool (*read)(std::string_view text, TraceRow& row);
  bool may_be_empty = true;  // the field of a row
};

constexpr std::array kColumns = {
    TraceColumn{
        "arrival", {"arrival_seconds", "arrived_at"}, "seconds, 0 to 1e9", read_arrival, false},
    TraceColumn{"timestamp", {}, "milliseconds, 0 to 1e12", read_milliseconds, false},
    TraceColumn{"TIMESTAMP", {}, "a time such as 2023-11-16 18:15:46.68", read_date, false},
    TraceColumn{"input",
                {"ContextTokens", "input_length", "prompt_tokens"},
                "a number of tokens from 1 to 16777216",
                read_input,
                false},
    TraceColumn{"output",
                {"GeneratedTokens", "output_length", "output_tokens"},
                "a number of tokens from 1 to 16777216",
                read_output,
                false},
    TraceColumn{"max_tokens", {}, "a number of tokens from 1 to 16777216", read_max_tokens},
    TraceColumn{"hashes", {"hash_ids"}, "whole numbers with a space between", read_hashes},
    TraceColumn{"session", {"session_id"}, "a name of at most 256 bytes", read_session},
    TraceColumn{"tenant", {"user"}, "a name of at most 256 bytes", read_tenant},
    TraceColumn{"priority", {}, "a whole number", read_priority},
    TraceColumn{"background", {}, "0, 1, false or true", read_background},
};

const TraceColumn* find_column(std::string_view name) {
  for (const TraceColumn& column : kColumns) {
    const auto& aliases = column.aliases;
    if (column.name == name || std::find(aliases.begin(), aliases.end(), name) != aliases.end()) {
      return &column;
    }
  }
  return nullptr;
}

constexpr std::string_view kRemedy = "correct the row or take it out";

// ---- files

class TraceReader {
 public:
  TraceReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Result<std::vector<TraceRequest>> read() {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);  // a byte order mark
    std::optional<std::string_view> line = next_line();
    if (!line) return invalid_argument(fmt::format("{}: no rows", name_));
    if (line->starts_with('{')) {
      for (; line; line = next_line()) HR_RETURN_IF_ERROR(read_json_row(*line));
    } else {
      HR_RETURN_IF_ERROR(read_header(*line));
      while ((line = next_line())) HR_RETURN_IF_ERROR(read_csv_row(*line));
    }
    if (trace_.empty()) return invalid_argument(fmt::format("{}: no rows", name_));
    return finish();
  }

 private:
  // Lines of blanks are no rows. Nothing: the end.
  std::optional<std::string_view> next_line() {
    while (!text_.empty()) {
      const size_t end = std::min(text_.find('\n'), text_.size());
      std::string_view line = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++line_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.find_first_not_of(" \t") != line.npos) return line;
    }
    return std::nullopt;
  }

  Status wrong(std::string_view what) const {
    return invalid_argument(fmt::format("{}, line {}: {}", name_, line_, what));
  }

  Status read_header(std::string_view line) {
    for (const std::string_view name : fields_of(line)) columns_.push_back(find_column(name));
    return check_columns("the header");
  }

  // A moment of arrival and both lengths, none twice.
  Status check_columns(std::string_view where) const {
    std::array<int, kColumns.size()> seen{};
    for (const TraceColumn* column : columns_) {
      if (column == nullptr) continue;
      if (++seen[static_cast<size_t>(column - kColumns.data())] > 1) {
        return wrong(fmt::format("{} has {} twice; leave one", where, column->name));
      }
    }
    const int arrivals = seen[0] + seen[1] + seen[2];
    if (arrivals == 1 && seen[3] == 1 && seen[4] == 1) return ok_status();
    if (arrivals > 1) {
      return wrong(fmt::format("{} has more than one moment of arrival; leave one", where));
    }
    return wrong(fmt::format(
        "{} has no {}; it needs arrival (or timestamp, TIMESTAMP), input and output", where,
        arrivals == 0  ? "arrival"
        : seen[3] == 0 ? "input"
                       : "output"));
  }

  // Fields are trimmed; one may stand in double quotes, without any inside.
  static std::vector<std::string_view> fields_of(std::string_view line) {
    std::vector<std::string_view> fields;
    while (true) {
      const size_t end = std::min(line.find(','), line.size());
      std::string_view field = line.substr(0, end);
      while (field.starts_with(' ') || field.starts_with('\t')) field.remove_prefix(1);
      while (field.ends_with(' ') || field.ends_with('\t')) field.remove_suffix(1);
      if (field.size() >= 2 && field.starts_with('"') && field.ends_with('"')) {
        field = field.substr(1, field.size() - 2);
      }
      fields.push_back(field);
      if (end == line.size()) return fields;
      line.remove_prefix(end + 1);
    }
  }

  Status read_csv_row(std::string_view line) {
    const std::vector<std::string_view> fields = fields_of(line);
    if (fields.size() != columns_.size()) {
      return wrong(fmt::format("{} fields, but the header has {}; {}", fields.size(),
                               columns_.size(), kRemedy));
    }
    TraceRow row;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (columns_[i] != nullptr) HR_RETURN_IF_ERROR(read_field(*columns_[i], fields[i], row));
    }
    return add(row);
  }

  Status read_json_row(std::string_view line) {
    const auto json = parse_json(line);
    if (!json.ok()) return wrong(fmt::format("{}; {}", json.status().message(), kRemedy));
    if (!json->is_object()) return wrong(fmt::format("no JSON object; {}", kRemedy));
    TraceRow row;
    columns_.clear();
    for (const auto& [name, value] : json->as_object()) {
      const TraceColumn* column = find_column(name);
      if (column == nullptr) continue;
      columns_.push_back(column);
      HR_RETURN_IF_ERROR(read_field(*column, text_of(value), row));
    }
    HR_RETURN_IF_ERROR(check_columns("the row"));
    return add(row);
  }

  // As it would stand in a table.
  static std::string text_of(const Json& value) {
    if (value.is_string()) return value.as_string();
    if (!value.is_array()) return write_json(value);
    std::string text;
    for (const Json& item : value.as_array()) {
      if (!text.empty()) text += ' ';
      text += write_json(item);
    }
    return text;
  }

  Status read_field(const TraceColumn& column, std::string_view field, TraceRow& row) const {
    if (field.empty() && column.may_be_empty) return ok_status();
    if (column.read(field, row)) return ok_status();
    return wrong(fmt::format("{} is \"{}\", but must be {}; {}", column.name,
                             field.substr(0, kShownBytesMax), column.must_be, kRemedy));
  }

  Status add(TraceRow& row) {
    const auto hashed = static_cast<int64_t>(row.hashes.size()) * kTokensPerHash;
    if (hashed >= row.input + kTokensPerHash) {
      return wrong(
          fmt::format("hashes are {} for {} input tokens, but must be at most one for {}; {}",
                      row.hashes.size(), row.input, kTokensPerHash, kRemedy));
    }
    if (!row.hashes.empty() && !row.session.empty()) {
      return wrong(fmt::format("hashes and session both say what the prompt shares; leave one"));
    }
    if (row.max_tokens > 0 && row.max_tokens < row.output) {
      return wrong(fmt::format("max_tokens is {}, but must be at least the output, {}; {}",
                               row.max_tokens, row.output, kRemedy));
    }
    TraceRequest request = std::move(row.rest);
    request.arrival_seconds = row.arrival_seconds;
    request.output = row.output;
    request.max_tokens = row.max_tokens > 0 ? row.max_tokens : row.output;
    request.prompt = prompt_spans(row);
    trace_.push_back(std::move(request));
    return ok_status();
  }

  // Turns of a session begin with the same tokens, as far as both reach.
  std::vector<PromptSpan> prompt_spans(const TraceRow& row) const {
    if (!row.session.empty()) {
      uint64_t content = kSession;
      for (const char byte : row.session) content = mix64(content ^ static_cast<uint8_t>(byte));
      return {{content, row.input}};
    }
    std::vector<PromptSpan> spans;
    int32_t left = row.input;
    for (const uint64_t hash : row.hashes) {
      spans.push_back({mix64(kHashed ^ mix64(hash)), std::min(left, kTokensPerHash)});
      left -= spans.back().tokens;
    }
    if (left > 0) spans.push_back({mix64(static_cast<uint64_t>(line_)), left});  // its own
    return spans;
  }

  Result<std::vector<TraceRequest>> finish() {
    std::stable_sort(trace_.begin(), trace_.end(), [](const auto& a, const auto& b) {
      return a.arrival_seconds < b.arrival_seconds;
    });
    const double start = trace_.front().arrival_seconds;
    for (TraceRequest& request : trace_) request.arrival_seconds -= start;
    return std::move(trace_);
  }

  std::string_view text_;
  const std::string_view name_;
  int64_t line_ = 0;
  std::vector<const TraceColumn*> columns_;  // null: one that says nothing here
  std::vector<TraceRequest> trace_;
};

bool is_made(std::string_view kind) {
  const auto kinds = trace_kinds();
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

void cut(TraceRequest& request, int32_t max_model_len) {
  request.max_tokens = std::min(request.max_tokens, max_model_len / 2);
  request.output = std::min(request.output, request.max_tokens);
  int32_t left = max_model_len - request.max_tokens;
  for (PromptSpan& span : request.prompt) {
    span.tokens = std::min(span.tokens, left);
    left -= span.tokens;
  }
  std::erase_if(request.prompt, [](const PromptSpan& span) { return span.tokens == 0; });
}

}  // namespace

Result<std::vector<TraceRequest>> parse_trace(std::string_view text, std::string_view name) {
  return TraceReader(text, name).read();
}

Status fit_trace(std::vector<TraceRequest>& trace, int32_t max_model_len, TooLong too_long) {
  const auto fits = [&](const TraceRequest& request) {
    return int64_t{request.prompt_tokens()} + request.max_tokens <= max_model_len;
  };
  for (size_t i = 0; i < trace.size() && too_long != TooLong::kDrop; ++i) {
    if (fits(trace[i])) continue;
    if (too_long == TooLong::kRefuse) {
      return invalid_argument(
          fmt::format("request {} of the trace has {} tokens of prompt and {} of answer, more than "
                      "the context of {}: raise --max-model-len, or say --too-long cut or drop",
                      i, trace[i].prompt_tokens(), trace[i].max_tokens, max_model_len));
    }
    cut(trace[i], max_model_len);
  }
  if (too_long == TooLong::kDrop)
    std::erase_if(trace, [&](const auto& each) { return !fits(each); });
  if (trace.empty()) {
    return invalid_argument(fmt::format(
        "no request of the trace fits the context of {}: raise --max-model-len", max_model_len));
  }
  return ok_status();
}

Result<std::vector<TraceRequest>> open_trace(const TraceOptions& options, TooLong too_long) {
  if (is_made(options.kind)) return make_trace(options);
  const auto file = MappedFile::open(options.kind);
  if (!file.ok()) {
    return invalid_argument(
        fmt::format("--trace {}: {}; it must be a file, or one of {}", options.kind,
                    file.status().message(), fmt::join(trace_kinds(), ", ")),
        "trace");
  }
  const auto bytes = (*file)->bytes();
  HR_ASSIGN_OR_RETURN(
      std::vector<TraceRequest> trace,
      parse_trace({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, options.kind));
  const auto wanted = static_cast<size_t>(options.requests);
  if (wanted > 0 && wanted < trace.size()) trace.resize(wanted);
  HR_RETURN_IF_ERROR(fit_trace(trace, options.max_model_len, too_long).with_context(options.kind));
  const double last = trace.back().arrival_seconds;
  if (options.rate <= 0 || last <= 0) return trace;
  const double scale = static_cast<double>(trace.size()) / options.rate / last;
  for (TraceRequest& request : trace) request.arrival_seconds *= scale;
  return trace;
}

}  // namespace headrace
