#include "core/prepared_list.hpp"

#include <algorithm>
#include <fstream>

#include "lockstep/core/error.hpp"

namespace lockstep {

Environment preparing_environment(const Environment& parent) {
  Environment result = parent;
  std::erase_if(result, [](const auto& variable) {
    const std::string& name = variable.first;
    return name.starts_with("TORCHELASTIC_") || name.starts_with("MASTER_") || name.starts_with("GROUP_") ||
           name.starts_with("ROLE_") || name == "LOCKSTEP_JOB_TOKEN";
  });
  // All four are set: otherwise a scheduler's variables would apply.
  result["RANK"] = result["LOCAL_RANK"] = "0";
  result["WORLD_SIZE"] = result["LOCAL_WORLD_SIZE"] = "1";
  result[kPrepareVariable] = "1";
  return result;
}

void note_prepared(const Environment& environment, const std::filesystem::path& entry) {
  const std::string list = find_variable(environment, kPreparedListVariable).value_or("");
  if (list.empty()) return;
  const std::string line = std::filesystem::absolute(entry).lexically_normal().string() + "\n";
  std::ofstream file(list, std::ios::app);
  if (!(file << line << std::flush))
    throw Error("cannot add to the list '" + list + "' (" + kPreparedListVariable + ").");
}

std::vector<std::filesystem::path> read_prepared_list(const std::filesystem::path& list) {
  std::ifstream file(list);
  std::vector<std::filesystem::path> entries;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && std::find(entries.begin(), entries.end(), line) == entries.end())
      entries.emplace_back(line);
  }
  if (!entries.empty()) return entries;
  throw DataError("the list '" + list.string() +
                  "' cannot be read, or names nothing: did the program that was prepared use map?");
}

}  // namespace lockstep
