#include "apps/hub_fetcher.h"

#include <algorithm>
#include <system_error>

#include "apps/model_download.h"
#include "base/log.h"
#include "hub/model_pull.h"
#include "stack/hub_cache.h"
#include "tensor/free_memory.h"

namespace headrace {

namespace fs = std::filesystem;

Result<ServedModelSpec> HubFetcher::fetch(const std::string& name,
                                          const std::function<bool()>& stopped,
                                          const Progress& progress) {
  const Result<ModelName> model = ModelName::read_name(name);
  const bool fetched =
      model.ok() && (model->kind() == NameKind::kHub || model->kind() == NameKind::kOllama);
  if (!fetched) {
    return invalid_argument(
        "model must be a name of Ollama's registry (MODEL:TAG) or of the Hugging Face hub "
        "(hf.co/USER/MODEL:QUANT): files and addresses are not fetched for clients",
        "model");
  }
  PullOptions options;
  options.stopped = stopped;
  options.memory_bytes = free_memory_bytes().value_or(int64_t{1} << 62);
  HR_ASSIGN_OR_RETURN(ModelPull pull, ModelPull::plan(*model, options));
  const int64_t bytes = pull.bytes();
  HR_RETURN_IF_ERROR(pull.run(options, [&](int64_t there) { progress(there, bytes); }).status());
  const std::string place = place_of_model(*model);
  keep(name, place);
  return make_spec_({name, place});
}

// So that it is served after a restart, too. Of a model in parts the link would be of one of them.
void HubFetcher::keep(const std::string& name, const std::string& place) const {
  std::error_code error;
  const bool file = fs::is_regular_file(place, error);
  if (file && split_name(fs::path(place).stem().string())) return;
  std::string link = name + (file ? ".gguf" : "");
  std::replace(link.begin(), link.end(), '/', '_');
  if (fs::exists(folder_ / link, error)) return;
  fs::remove(folder_ / link, error);  // of what has gone
  fs::create_symlink(fs::absolute(place), folder_ / link, error);
  if (error)
    log_warning("{}: no link to {}: {}", (folder_ / link).string(), place, error.message());
}

}  // namespace headrace
