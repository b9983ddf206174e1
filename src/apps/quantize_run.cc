#include "apps/quantize_run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/eval_perplexity.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/log.h"
#include "quantize/block_rows.h"
#include "quantize/calibration_text.h"
#include "quantize/layer_source.h"
#include "quantize/quantize_journal.h"
#include "stack/model_files.h"
#include "terminal/progress.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kUsualSamples = 128;
constexpr double kHeldOut = 0.05;  // of a calibration text, for perplexity
constexpr int32_t kPerplexityWindow = 512;

// Whole characters and lines alone.
size_t cut_at(std::string_view text, double share) {
  const auto wanted = static_cast<size_t>(static_cast<double>(text.size()) * share);
  const size_t line = text.find('\n', wanted);
  return line == text.npos ? text.size() : line + 1;
}

// Of what is being made, while a run makes it: a file beside it, locked.
class OutputLock {
 public:
  explicit OutputLock(std::string path) : path_(std::move(path)) {}
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;
  ~OutputLock() {
    if (!locked_) return;
    ::unlink(path_.c_str());
    ::close(file_);
  }

  // kUnavailable: another run has it. Where no file can be made, what is made says why.
  Status take(const std::string& out) {
    file_ = ::open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file_ < 0) return ok_status();
    locked_ = ::flock(file_, LOCK_EX | LOCK_NB) == 0 && is_there();
    if (locked_) return ok_status();
    ::close(file_);
    return unavailable(fmt::format(
        "{}: another 'headrace quantize' makes it: wait until that has ended, or name another OUT",
        out));
  }

 private:
  // Whether the file is still the one of that name: a run that ends takes it away.
  bool is_there() const {
    struct stat own, named;
    return ::fstat(file_, &own) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           own.st_ino == named.st_ino && own.st_dev == named.st_dev;
  }

  const std::string path_;
  int file_ = -1;
  bool locked_ = false;
};

// When the newest of the model's files was written: of a folder, of those in it.
int64_t newest_change(const std::string& model) {
  std::error_code error;
  const auto time_of = [&](const fs::path& path) {
    return static_cast<int64_t>(fs::last_write_time(path, error).time_since_epoch().count());
  };
  if (!fs::is_directory(model)) return time_of(model);
  int64_t newest = 0;
  for (const auto& entry : fs::directory_iterator(model, error)) {
    newest = std::max(newest, time_of(entry.path()));
  }
  return newest;
}

class QuantizeRun {
 public:
  explicit QuantizeRun(const QuantizeRunOptions& options)
      : options_(options), quantize_(options.quantize) {}

  Status run() {
    HR_RETURN_IF_ERROR(open());
    HR_RETURN_IF_ERROR(choose_grid());
    HR_RETURN_IF_ERROR(read_texts());
    OutputLock lock(partial() + ".lock");
    HR_RETURN_IF_ERROR(lock.take(options_.out));
    HR_RETURN_IF_ERROR(check_partial());
    if (from_gguf()) warn_of_rounding_twice();
    HR_RETURN_IF_ERROR(begin());
    std::optional<Perplexity> before;
    if (options_.measures_perplexity && !perplexity_text_.empty()) {
      HR_ASSIGN_OR_RETURN(before, perplexity_of(options_.model));
    }
    HR_RETURN_IF_ERROR(quantise());
    if (!before) return ok_status();
    HR_ASSIGN_OR_RETURN(const Perplexity after, perplexity_of(options_.out));
    fmt::print("perplexity {:.4f} before, {:.4f} after ({:+.2f} %; {} targets)\n",
               before->perplexity, after.perplexity,
               100 * (after.perplexity / before->perplexity - 1), after.scored);
    return ok_status();
  }

 private:
  bool from_gguf() const { return source_->kind() == SourceKind::kGguf; }

  Status open() {
    std::error_code ignored;
    if (fs::exists(options_.out, ignored)) {
      return invalid_argument(
          fmt::format("{}: is there already: remove it or name another", options_.out));
    }
    HR_ASSIGN_OR_RETURN(source_, open_model_source(options_.model));
    weights_ = read_weights(*source_);
    HR_RETURN_IF_ERROR(refusal(weights_.problems));
    text_ = read_tokenizer_alone(*source_);
    HR_RETURN_IF_ERROR(refusal(text_.problems));
    HR_RETURN_IF_ERROR(refusal(make_agree(*source_, weights_, text_)));
    HR_ASSIGN_OR_RETURN(matrices_, matrices_to_quantise(weights_.config, *weights_.architecture));
    if (from_gguf()) {
      HR_ASSIGN_OR_RETURN(gguf_, GgufFile::open(options_.model));
      return ok_status();
    }
    HR_ASSIGN_OR_RETURN(
        hub_, SafetensorsWeightSource::open(options_.model,
                                            {.names = weights_.architecture->hf_names(),
                                             .tied_embeddings = weights_.config.tied_embeddings}));
    return check_is_float();
  }

  // A hub's file that is quantised already has not one tensor for a matrix.
  Status check_is_float() const {
    for (const QuantisedName& matrix : matrices_) {
      const auto info = hub_->info(matrix.name);
      if (info && (info->type == "F32" || info->type == "F16" || info->type == "BF16")) continue;
      return unsupported(fmt::format("{}: tensor {} is {}: quantise the model's float weights",
                                     options_.model, hub_->name_in_file(matrix.name),
                                     info ? info->type : "not there"));
    }
    return ok_status();
  }

  // ---- What it is rounded to

  Status choose_grid() {
    if (from_gguf() != quantize_.block_type.has_value()) {
      return invalid_argument(
          from_gguf() ? "a .gguf file becomes one: name its type (--type q4_k, q8_0, ...)"
                      : "--type is of .gguf files: a folder takes --bits and --group-size");
    }
    if (quantize_.block_type) return choose_block_types();
    const auto scales = hub_->info(matrices_.front().name)->dtype;
    quantize_.grid.scale_type = scales == DType::kBF16 ? DType::kBF16 : DType::kF16;
    const auto divides = [&](int64_t group) {
      return std::ranges::all_of(
          matrices_, [&](const QuantisedName& matrix) { return matrix.shape[1] % group == 0; });
    };
    if (options_.group > 0 && !divides(options_.group)) {
      return invalid_argument(
          fmt::format("groups of {} do not divide the columns of every matrix: "
                      "take a smaller --group-size",
                      options_.group));
    }
    quantize_.grid.group = options_.group;
    for (const int64_t group : {128, 64, 32}) {
      if (quantize_.grid.group == 0 && divides(group)) quantize_.grid.group = group;
    }
    if (quantize_.grid.group > 0) return ok_status();
    return unsupported("groups of 32 do not divide the columns of every matrix: quantise a .gguf");
  }

  Status choose_block_types() {
    if (quantize_.method != QuantizeMethod::kNearest) {
      if (quantize_.block_type != DType::kQ4_0) {
        return invalid_argument(fmt::format(
            "--method {} makes Q4_0 of .gguf files: other types are made by --method nearest",
            name_of(kQuantizeMethods, quantize_.method)));
      }
      quantize_.grid = {.bits = 4, .group = 32, .symmetric = true, .scale_type = DType::kF16};
    }
    for (const QuantisedName& matrix : matrices_) {
      if (block_type_for(*quantize_.block_type, matrix.shape[1])) continue;
      return unsupported(fmt::format("tensor {}: rows of {} columns are no whole blocks of {}",
                                     matrix.name, matrix.shape[1],
                                     dtype_name(*quantize_.block_type)));
    }
    return ok_status();
  }

  // The errors of both roundings add up: texts at temperature 0 leave the model's own sooner than
  // perplexity says.
  void warn_of_rounding_twice() const {
    for (const QuantisedName& matrix : matrices_) {
      const auto info = source().info(matrix.name);
      if (!info || !info->dtype || !is_quantised(*info->dtype)) continue;
      return log_warning(
          "{}: is rounded already (tensor {} is {}), and is rounded once more: answers keep closer "
          "to the model's own if what is quantised is its F16, BF16 or F32 file",
          options_.model, matrix.name, info->type);
    }
  }

  // The embedding and the head: at 8 bits, where fewer show most.
  std::vector<std::pair<std::string, DType>> tables() const {
    std::vector<std::pair<std::string, DType>> all;
    for (const GgufTensor& tensor : gguf_->plan().tensors) {
      const bool is_table = tensor.name == "token_embd.weight" || tensor.name == "output.weight";
      if (!is_table || tensor.shape.rank() != 2) continue;
      if (row_bytes(DType::kQ8_0, tensor.shape[1])) all.emplace_back(tensor.name, DType::kQ8_0);
    }
    return all;
  }

  // ---- What it is measured by

  bool needs_text() const { return quantize_.method != QuantizeMethod::kNearest || from_gguf(); }

  Status read_texts() {
    std::string text(default_calibration_text());
    if (!options_.calibration.empty()) {
      HR_ASSIGN_OR_RETURN(text, read_evaluated_text(options_.calibration));
    }
    perplexity_text_ = text;
    if (!options_.perplexity.empty()) {
      HR_ASSIGN_OR_RETURN(perplexity_text_, read_evaluated_text(options_.perplexity));
    } else if (needs_text()) {
      const size_t cut = cut_at(text, 1 - kHeldOut);
      perplexity_text_ = text.substr(cut);
      text.resize(cut);
    }
    if (!needs_text() && !options_.measures_perplexity) return ok_status();
    if (text_.tokenizer == nullptr) {
      return unsupported(fmt::format("{}: has no vocabulary to read a text with", options_.model));
    }
    if (needs_text()) HR_RETURN_IF_ERROR(choose_tokens(text));
    HR_ASSIGN_OR_RETURN(const auto ids, text_.tokenizer->encode(perplexity_text_));
    if (std::ssize(ids) < kPerplexityWindow) {
      if (!options_.perplexity.empty()) {
        log_warning("{}: {} tokens, perplexity is of {} and more: none is measured",
                    options_.perplexity, ids.size(), kPerplexityWindow);
      }
      perplexity_text_.clear();
    }
    return ok_status();
  }

  // Sequences from all over the text.
  Status choose_tokens(const std::string& text) {
    HR_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, text_.tokenizer->encode(text));
    const int64_t length = options_.length, there = std::ssize(ids) / length;
    const bool own_text = options_.calibration.empty();
    int64_t wanted = options_.samples > 0 ? options_.samples : kUsualSamples;
    if (own_text && options_.samples == 0) wanted = std::min(wanted, std::max<int64_t>(there, 1));
    if (there < wanted) {
      const double bytes_a_token = static_cast<double>(text.size()) /
                                   static_cast<double>(std::max<int64_t>(std::ssize(ids), 1));
      return invalid_argument(fmt::format(
          "{}: {} tokens, {} sequences of {} need {}: give a text of about {:.0f} KB, or --samples "
          "{} --length {}",
          own_text ? "the built-in calibration text" : options_.calibration, ids.size(), wanted,
          length, wanted * length,
          std::ceil(bytes_a_token * static_cast<double>(wanted * length) / 1000),
          std::max<int64_t>(there, 1),
          there > 0 ? length : std::max<int64_t>(std::ssize(ids), 16)));
    }
    HR_RETURN_IF_ERROR(check_rows(wanted * length));
    for (int64_t s = 0; s < wanted; ++s) {
      const auto first = ids.begin() + s * there / wanted * length;
      tokens_.insert(tokens_.end(), first, first + length);
      const Vocab& vocab = text_.tokenizer->vocab();
      if (vocab.add_bos && vocab.bos >= 0) tokens_[static_cast<size_t>(s * length)] = vocab.bos;
    }
    return ok_status();
  }

  // With fewer rows than columns GPTQ moves its errors to where this text does not show them.
  Status check_rows(int64_t rows) const {
    if (quantize_.method != QuantizeMethod::kGptq) return ok_status();
    int64_t columns = 0;
    for (const QuantisedName& matrix : matrices_) columns = std::max(columns, matrix.shape[1]);
    if (rows >= columns) return ok_status();
    return invalid_argument(
        fmt::format("{} tokens are too few for GPTQ of matrices of {} columns, which need as many: "
                    "give a longer --calibration, more --samples, or --method awq",
                    rows, columns));
  }

  // No longer than the model's context.
  int32_t perplexity_window() const {
    return weights_.config.context_length > 0
               ? std::min(kPerplexityWindow, static_cast<int32_t>(weights_.config.context_length))
               : kPerplexityWindow;
  }

  Result<Perplexity> perplexity_of(const std::string& model) const {
    StackOptions stack{.model = model};
    stack.device.choice = DeviceChoice::kCpu;
    stack.device.threads = options_.threads;
    stack.load.activation_bits = 16;  // what is compared is weights
    stack.batch.max_num_seqs = 4;
    const int32_t window = perplexity_window();
    stack.memory.max_model_len = window;
    HR_ASSIGN_OR_RETURN(const auto loaded, ModelStack::load(stack));
    Progress progress("perplexity", "windows");
    return measure_perplexity(
        *loaded, perplexity_text_, window, [&](int64_t done, int64_t windows, double) {
          progress.update(static_cast<double>(done), static_cast<double>(windows));
        });
  }

  // ---- What is made

  std::string partial() const { return options_.out + ".partial"; }
  std::string journal_path() const { return partial() + ".json"; }

  // What lies there without a journal is nothing that a run left: it stays.
  Status check_partial() const {
    if (!fs::exists(partial()) || fs::exists(journal_path())) return ok_status();
    return invalid_argument(fmt::format(
        "{}: exists, and is not what an interrupted run left (there is no {}): move it away, or "
        "name another OUT",
        partial(), journal_path()));
  }

  // The journal is there before anything else is.
  Status begin() {
    journal_.emplace(journal_path(), settings());
    errors_ = journal_->read();
    if (errors_.empty()) HR_RETURN_IF_ERROR(journal_->write({}));
    const Status made = make_output();
    if (!made.ok() && errors_.empty()) journal_->remove();
    if (made.ok() && !output_->continued()) errors_.clear();
    return made;
  }

  Status make_output() {
    if (from_gguf()) {
      GgufOutputOptions gguf{.path = options_.out,
                             .partial = partial(),
                             .matrices = tables(),
                             .dtype = *quantize_.block_type};
      for (const QuantisedName& matrix : matrices_) {
        gguf.matrices.emplace_back(matrix.name,
                                   *block_type_for(*quantize_.block_type, matrix.shape[1]));
      }
      HR_ASSIGN_OR_RETURN(output_, create_gguf_output(gguf, gguf_));
      return ok_status();
    }
    HfOutputOptions folder{
        .source = options_.model,
        .path = options_.out,
        .partial = partial(),
        .names = weights_.architecture->hf_names(),
        .matrices = {},
        .grid = quantize_.grid,
        .act_order = quantize_.act_order && quantize_.method == QuantizeMethod::kGptq};
    for (const QuantisedName& matrix : matrices_) folder.matrices.push_back(matrix.name);
    HR_ASSIGN_OR_RETURN(output_, create_hf_output(folder, *hub_));
    return ok_status();
  }

  const WeightSource& source() const {
    return from_gguf() ? *weights_.weights : static_cast<const WeightSource&>(*hub_);
  }

  // All that the result depends on.
  Json settings() const {
    return Json::object()
        .set("model", options_.model)
        .set("bytes", source().file_bytes())
        .set("changed", newest_change(options_.model))
        .set("method", name_of(kQuantizeMethods, quantize_.method))
        .set("type", quantize_.block_type ? dtype_name(*quantize_.block_type) : "")
        .set("bits", quantize_.grid.bits)
        .set("group", quantize_.grid.group)
        .set("symmetric", quantize_.grid.symmetric)
        .set("act_order", quantize_.act_order)
        .set("damping", quantize_.damping)
        .set("length", options_.length)
        .set("text", fmt::format("{:016x}", checksum64(std::as_bytes(std::span(tokens_)))));
  }

  Status quantise() {
    const QuantizeJournal& journal = *journal_;
    std::vector<double>& errors = errors_;
    const auto device = create_cpu_device(options_.threads);
    if (errors.empty()) {
      HR_RETURN_IF_ERROR(output_->copy_rest());
      HR_RETURN_IF_ERROR(write_tables(*device));
    } else {
      fmt::print("{} layers are done already\n", errors.size());
    }
    const QuantizeJob job{.config = weights_.config,
                          .architecture = *weights_.architecture,
                          .source = source(),
                          .matrices = matrices_,
                          .tokens = tokens_,
                          .length = options_.length,
                          .options = quantize_,
                          .layers_done = static_cast<int32_t>(errors.size())};
    Progress progress("quantise", "layers");
    Quantizer quantizer(*device, job, *output_);
    HR_RETURN_IF_ERROR(quantizer.run(
        [&](double layers, std::string_view what) {
          // Of those that are left: of others the texts go through alone.
          progress.update(std::max(0.0, layers - job.layers_done),
                          weights_.config.layers - job.layers_done, what);
        },
        [&](const LayerReport& report) {
          progress.take_away();
          print_layer(report);
          errors.push_back(report.error);
          HR_RETURN_IF_ERROR(output_->flush());
          return journal.write(errors);
        }));
    HR_RETURN_IF_ERROR(output_->finish());
    journal.remove();
    return ok_status();
  }

  static void print_layer(const LayerReport& report) {
    if (report.error < 0) return;
    fmt::print("layer {:>3}  error {:.3e} of its products' squares  {:.1f} s\n", report.layer,
               report.error, report.seconds);
    std::fflush(stdout);
  }

  Status write_tables(Device& device) {
    if (!from_gguf()) return ok_status();
    for (const auto& [name, dtype] : tables()) {
      HR_ASSIGN_OR_RETURN(const Matrix table, read_tensor(device.pool(), source(), name));
      output_->write(name, BlockMatrix{dtype, table.rows(), table.columns(),
                                       quantise_blocks(device.pool(), table, dtype, {})});
    }
    return ok_status();
  }

  const QuantizeRunOptions& options_;
  QuantizeOptions quantize_;
  std::unique_ptr<ModelSource> source_;
  ModelWeights weights_;
  ModelText text_;
  std::shared_ptr<const GgufFile> gguf_;
  std::unique_ptr<SafetensorsWeightSource> hub_;
  std::vector<QuantisedName> matrices_;
  std::vector<TokenId> tokens_;
  std::string perplexity_text_;
  std::unique_ptr<OutputModel> output_;
  std::optional<QuantizeJournal> journal_;
  std::vector<double> errors_;  // of the layers that are done
};

}  // namespace

Status run_quantize(const QuantizeRunOptions& options) { return QuantizeRun(options).run(); }

}  // namespace headrace
