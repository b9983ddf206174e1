// What a model may be called, and where it lies on this machine: a path, a name of the Hugging Face
// hub, a name of Ollama's registry, or the address of a .gguf file. Nothing is fetched here.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"

namespace headrace {

enum class NameKind { kPath, kHub, kOllama, kUrl };

// Every word of it is checked: none leads out of the folder in which the model is kept.
class ModelName {
 public:
  // "folder/model.gguf"; "Qwen/Qwen3-0.6B", with a branch, tag or commit ("@v2") and a quant
  // (":Q8_0") behind it, and "hf:", "hf.co/" or "huggingface.co/" in front; "llama3.2:1b",
  // "ollama:maker/model:tag"; "https://host/model.gguf". What is there as a file or folder is a
  // path, and so is what is spelled like none of the others. kInvalidArgument: a prefix says which
  // kind it is, and the rest is none.
  static Result<ModelName> read(const std::string& text);
  // The same of a name that is none of a file here, whatever files there are.
  static Result<ModelName> read_name(const std::string& text);

  NameKind kind() const { return kind_; }
  const std::string& text() const { return text_; }
  // Of the hub "maker/model"; of Ollama's registry "library/llama3.2".
  const std::string& repo() const { return repo_; }
  // Of the hub: "main" where none is named. Of Ollama's registry the tag, "latest".
  const std::string& revision() const { return revision_; }
  const std::string& quant() const { return quant_; }  // of the hub; empty: none is named
  // REQUIRES: kOllama or kUrl. The file under which it is kept, there or not.
  std::filesystem::path file() const;

 private:
  ModelName() = default;
  Status read_hub(std::string text);
  Status read_ollama(std::string text);
  Status read_url();

  NameKind kind_ = NameKind::kPath;
  std::string text_, repo_, revision_, quant_;
};

// What a name stands for: a path, or the plain name of a model of the hub whose snapshot is a
// folder as of transformers. A text that is no name is itself. kNotFound tells how to get it.
// `revision` goes before the name's own; it may be empty.
Result<std::string> local_model(const std::string& text, const std::string& revision = "");
Result<std::string> local_model(const ModelName& name, const std::string& revision = "");

// Where .gguf files are kept that are of no hub: headrace/models in the user's cache folder.
std::filesystem::path model_files_folder();

}  // namespace headrace
