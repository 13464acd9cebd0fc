#include "train/elastic/program_text.hpp"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/build_id.hpp"
#include "core/json_text.hpp"
#include "train/elastic/elastic_part.hpp"
#include "train/prepared_objects.hpp"
#include "train/training_scope.hpp"

namespace lockstep::train {
namespace {

using nlohmann::json;

/// The path of each loaded file, empty for the program itself, and its build id.
using LoadedFiles = std::vector<std::pair<std::string, std::string>>;

int add_loaded_file(dl_phdr_info* file, std::size_t, void* list) {
  static_cast<LoadedFiles*>(list)->emplace_back(file->dlpi_name, linker_build_id(*file));
  return 0;
}

/// Of the program and all libraries: the linker's build id, otherwise the file's size. A program that was
/// built again has others, also under the names of those that still run; the same files have the same ones on
/// each host, which inodes have not.
json loaded_files() {
  LoadedFiles loaded;
  dl_iterate_phdr(add_loaded_file, &loaded);
  json files = json::object();
  for (auto& [path, id] : loaded) {
    if (!path.empty() && !path.starts_with('/')) continue;
    std::error_code unknown;
    if (id.empty())
      id = fmt::format("{} bytes",
                       std::filesystem::file_size(path.empty() ? "/proc/self/exe" : path, unknown));
    files[path.empty() ? "the program" : path] = id;
  }
  return files;
}

json arguments() {
  std::ifstream file("/proc/self/cmdline");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  json words = json::array();
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\0', start), text.size());
    words.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

/// "float[6,32]" of each tensor would be long for large models: their number, their elements, and a hash.
json shapes_of(const std::vector<at::Tensor>& tensors) {
  std::string text;
  std::int64_t elements = 0;
  for (const auto& tensor : tensors) {
    text += fmt::format("{}[{}]", tensor.dtype().name(), fmt::join(tensor.sizes(), ","));
    elements += tensor.numel();
  }
  return fmt::format("{} tensors of {} elements, shapes {:016x}", tensors.size(), elements,
                     std::hash<std::string>{}(text));
}

}  // namespace

std::string program_text(const Accelerator& accelerator) {
  const auto& prepared = TrainingScope::prepared_of(accelerator);
  json models = json::array(), optimizers = json::array();
  for (const auto& model : prepared.models()) {
    std::vector<at::Tensor> tensors;
    if (auto* const ddp = model.wrapped.ddp(); ddp != nullptr) {
      for (const auto& entry : ddp->parameters()) tensors.push_back(entry.tensor);
      for (const auto& entry : ddp->buffers()) tensors.push_back(entry.tensor);
    } else {
      for (const auto& entry : model.contents.state()) tensors.push_back(entry.tensor);
    }
    models.push_back(shapes_of(tensors));
  }
  for (auto* const optimizer : prepared.optimizers()) {
    std::vector<at::Tensor> tensors;
    for (const auto& group : optimizer->param_groups())
      tensors.insert(tensors.end(), group.params().begin(), group.params().end());
    optimizers.push_back(shapes_of(tensors));
  }
  return json_text(json{{"files", loaded_files()},
                        {"instructions of the processor", at::get_cpu_capability()},
                        {"arguments", arguments()},
                        {"models", models},
                        {"optimizers", optimizers},
                        {"schedulers", prepared.schedulers().size()},
                        {"loaders", prepared.loaders().size()},
                        {"objects for checkpoints", TrainingScope::elastic_parts(accelerator).size()}});
}

}  // namespace lockstep::train
