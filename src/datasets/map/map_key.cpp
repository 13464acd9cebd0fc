#include "map_key.hpp"

#include <elf.h>
#include <fmt/core.h>
#include <link.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "datasets/dataset/state.hpp"
#include "datasets/table/content_hash.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

struct Search {
  std::uintptr_t address;
  bool found = false;
  std::string build_id = {};
  std::string file = {};
  std::uintptr_t base = 0;
};

std::size_t rounded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

/// The build id in the notes of a segment, as bytes; empty if there is none.
std::string id_among(const char* note, const char* end) {
  while (note + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) header;
    std::memcpy(&header, note, sizeof header);
    const char* name = note + sizeof header;
    const char* text = name + rounded(header.n_namesz);
    note = text + rounded(header.n_descsz);
    if (note > end) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
      return std::string(text, header.n_descsz);
  }
  return "";
}

bool holds(const dl_phdr_info& module, std::uintptr_t address) {
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const auto& segment = module.dlpi_phdr[i];
    const std::uintptr_t begin = module.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address - begin < segment.p_memsz) return true;
  }
  return false;
}

int look(dl_phdr_info* module, std::size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  if (!holds(*module, search.address)) return 0;
  search.found = true;
  search.base = module->dlpi_addr;
  // The program itself has an empty name.
  search.file = *module->dlpi_name == '\0' ? "/proc/self/exe" : module->dlpi_name;
  for (int i = 0; i < module->dlpi_phnum && search.build_id.empty(); ++i) {
    const auto& segment = module->dlpi_phdr[i];
    const auto* notes = reinterpret_cast<const char*>(module->dlpi_addr + segment.p_vaddr);
    if (segment.p_type == PT_NOTE) search.build_id = id_among(notes, notes + segment.p_memsz);
  }
  return 1;
}

Search module_of(const void* address) {
  Search search{.address = reinterpret_cast<std::uintptr_t>(address)};
  dl_iterate_phdr(look, &search);
  if (!search.found)
    throw Error("map: the function lies in no loaded module. Declare a version in MapOptions::version.");
  if (search.build_id.empty()) {
    search.build_id = default_hash_memory().of(std::filesystem::path(search.file));
  } else {
    search.build_id = format_hex(search.build_id);
  }
  return search;
}

}  // namespace

std::string build_id_of(const void* address) { return module_of(address).build_id; }

std::string code_id_of(const void* address) {
  const Search module = module_of(address);
  return fmt::format("{}+{:x}", module.build_id, module.address - module.base);
}

namespace {

using Json = nlohmann::json;

constexpr int kLayout = 2;

Json parse_parameters(const MapOptions& options) {
  Json parameters = Json::parse(options.parameters, nullptr, false);
  if (parameters.is_object()) return parameters;
  throw UsageError(fmt::format(
      "map '{}': the parameters '{}' are not a JSON object. Expected one, as in {{\"max_length\": 128}}.",
      options.name, options.parameters));
}

/// An object's key as a part of a field's name; quoted if it has a dot, which separates keys.
std::string name_part(const std::string& key) {
  return key.empty() || key.find_first_of(".\"") != std::string::npos ? json_text(Json(key)) : key;
}

/// Adds a field per value that is not an object, such as "parameters.tokens.pad", so that an explanation can
/// name it.
void flatten(const std::string& name, const Json& value, std::map<std::string, std::string>& fields) {
  if (!value.is_object() || value.empty()) {
    fields[name] = json_text(value);
    return;
  }
  for (const auto& [key, each] : value.items()) flatten(name + "." + name_part(key), each, fields);
}

/// Rejects captured values that are not part of the key: they may differ in the next run.
void check_captures(const mapping::Code& code, const MapOptions& options, const Json& parameters) {
  if (!code.captures || options.version || !parameters.empty()) return;
  throw UsageError(fmt::format(
      "map '{}': the function or its setup captures values, and no key can show them: with other values the "
      "old result would be found. Say them in `parameters` (R\"({{\"threshold\": 0.5}})\"), or give a "
      "`version` and raise it with them; a lambda without captures needs neither.",
      options.name));
}

void add_code(const mapping::Code& code, const MapOptions& options,
              std::map<std::string, std::string>& fields) {
  if (options.version) {
    fields["version"] = json_text(Json(*options.version));
    return;
  }
  fields["function"] = json_text(Json(code_id_of(code.function)));
  fields["setup"] = json_text(Json(code_id_of(code.setup)));
  fields["library_build_id"] = json_text(Json(build_id_of(reinterpret_cast<const void*>(&map_manifest))));
}

void add_input_files(const MapOptions& options, const HashMemory& memory,
                     std::map<std::string, std::string>& fields) {
  for (std::size_t i = 0; i < options.input_files.size(); ++i) {
    const auto& path = options.input_files[i];
    fields[fmt::format("input_files.{}.{}", i, utf8_text(path.filename().string()))] =
        json_text(Json(memory.of(path)));
  }
}

}  // namespace

CacheManifest map_manifest(const ArrowDataset& dataset, const std::string& operation,
                           const mapping::Code& code, const MapOptions& options,
                           const std::filesystem::path& cache) {
  const HashMemory memory(cache);
  const Json parameters = parse_parameters(options);
  check_captures(code, options, parameters);
  CacheManifest manifest;
  manifest.name = options.name;
  auto& fields = manifest.fields;
  fields["layout"] = std::to_string(kLayout);
  fields["operation"] = json_text(Json(operation));
  fields["source"] = json_text(Json(DatasetAccess::fingerprint(dataset, memory)));
  fields["batch_size"] = std::to_string(options.batch_size);
  fields["remove_columns"] = json_text(Json(options.remove_columns));
  if (options.features) fields["features"] = json_text(Json::parse(options.features->to_json()));
  if (options.shard_rows > 0) fields["shard_rows"] = std::to_string(options.shard_rows);
  flatten("parameters", parameters, fields);
  add_code(code, options, fields);
  add_input_files(options, memory, fields);
  const Json whole = {{"name", options.name}, {"fields", fields}};
  manifest.key = table::content_hash(json_text(whole));
  return manifest;
}

}  // namespace lockstep
