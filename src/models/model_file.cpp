#include "lockstep/models/model_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "checkpoint/zip_archive.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

bool any_has(const std::vector<std::string>& names, const std::string& part) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.find(part) != std::string::npos; });
}

ModelFileKind archive_kind(const std::vector<std::string>& names) {
  if (any_has(names, "data/aotinductor/")) return ModelFileKind::aot_inductor;
  if (any_has(names, "constants.pkl") && any_has(names, "code/")) return ModelFileKind::torch_script;
  if (any_has(names, "models/") || any_has(names, "serialized_exported_program.json"))
    return ModelFileKind::exported;
  return any_has(names, "data.pkl") ? ModelFileKind::state_dict : ModelFileKind::unknown;
}

/// A pickle begins with 0x80 and its version, safetensors with the length of a JSON header.
ModelFileKind kind_by_first_bytes(const fs::path& path) {
  std::string bytes(9, '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5) return ModelFileKind::state_dict;
  return bytes[8] == '{' && bytes[7] == '\0' ? ModelFileKind::safetensors : ModelFileKind::unknown;
}

const char* description_of(ModelFileKind kind) {
  switch (kind) {
    case ModelFileKind::torch_script:
      return "a TorchScript program";
    case ModelFileKind::aot_inductor:
      return "a package of AOTInductor";
    case ModelFileKind::exported:
      return "a graph of torch.export, which only Python runs";
    case ModelFileKind::state_dict:
      return "a pickle of torch.save, which holds weights and no program";
    case ModelFileKind::safetensors:
      return "weights as safetensors, which hold no program";
    case ModelFileKind::unknown:
      break;
  }
  return "no model that Python wrote, or a damaged one";
}

const char* advice_for(ModelFileKind wanted) {
  if (wanted == ModelFileKind::torch_script) return "torch.jit.script(model).save(path), or torch.jit.trace";
  return "torch._inductor.aoti_compile_and_package(torch.export.export(model, inputs), package_path=path)";
}

}  // namespace

ModelFileKind model_file_kind(const fs::path& path) {
  if (fs::is_directory(path)) throw DataError("'" + path.string() + "' is a folder, but a file is needed");
  const auto names = ZipArchive(path).names();
  return names.empty() ? kind_by_first_bytes(path) : archive_kind(names);
}

void require_kind(const fs::path& path, ModelFileKind wanted) {
  const auto kind = model_file_kind(path);
  if (kind == wanted) return;
  throw DataError(fmt::format("'{}' is {}. Expected {}, as Python writes it with {}.", path.string(),
                              description_of(kind), description_of(wanted), advice_for(wanted)));
}

}  // namespace lockstep::models
