#include "train/elastic/program_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "core/json_text.hpp"
#include "train/elastic/elastic_part.hpp"
#include "train/prepared_objects.hpp"
#include "train/training_scope.hpp"

namespace lockstep::train {
namespace {

using nlohmann::json;

/// Of the executable and all libraries: "inode 7". A program that was built again has other files, also under
/// the names of those that still run.
json mapped_files() {
  json files = json::object();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, access, offset, device, inode, path;
    words >> range >> access >> offset >> device >> inode >> std::ws;
    std::getline(words, path);  // It may have spaces.
    if (path.starts_with('/') && access.find('x') != std::string::npos)
      files[path] = device + " inode " + inode;
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
  return json_text(json{{"files", mapped_files()},
                        {"arguments", arguments()},
                        {"models", models},
                        {"optimizers", optimizers},
                        {"schedulers", prepared.schedulers().size()},
                        {"loaders", prepared.loaders().size()},
                        {"objects for checkpoints", TrainingScope::elastic_parts(accelerator).size()}});
}

}  // namespace lockstep::train
