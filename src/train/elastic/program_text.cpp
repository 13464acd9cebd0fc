#include "train/elastic/program_text.hpp"

#include <ATen/Version.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "train/elastic/elastic_part.hpp"
#include "train/prepared_objects.hpp"
#include "train/training_scope.hpp"

namespace lockstep::train {
namespace {

using nlohmann::json;

/// A loaded file, and its notes in memory.
struct LoadedFile {
  std::string path;  // Empty: the program itself.
  std::vector<std::pair<const char*, const char*>> notes;
};

int add_loaded_file(dl_phdr_info* info, std::size_t, void* list) {
  LoadedFile file{.path = info->dlpi_name, .notes = {}};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader gives addresses as numbers.
    const auto* const notes = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    file.notes.emplace_back(notes, notes + segment.p_memsz);
  }
  static_cast<std::vector<LoadedFile>*>(list)->push_back(std::move(file));
  return 0;
}

/// The linker's build id of a file, in hexadecimal; empty if it has none.
std::string build_id_in(const char* note, const char* end) {
  const auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
  while (note + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) header;
    std::memcpy(&header, note, sizeof header);
    const char* const name = note + sizeof header;
    const char* const value = name + padded(header.n_namesz);
    if (value + header.n_descsz > end) break;
    if (header.n_type == NT_GNU_BUILD_ID &&
        std::string_view(name, header.n_namesz) == std::string_view("GNU", 4))
      return format_hex(std::string_view(value, header.n_descsz));
    note = value + padded(header.n_descsz);
  }
  return "";
}

/// Of the program and all libraries: the linker's build id, otherwise the file's size. A program that was
/// built again has others, also under the names of those that still run; the same files have the same ones on
/// each host, which inodes have not.
json loaded_files() {
  std::vector<LoadedFile> loaded;
  dl_iterate_phdr(add_loaded_file, &loaded);
  json files = json::object();
  for (const auto& [path, notes] : loaded) {
    if (!path.empty() && !path.starts_with('/')) continue;
    std::string id;
    for (const auto& [begin, end] : notes)
      if (id.empty()) id = build_id_in(begin, end);
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
