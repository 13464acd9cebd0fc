#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <ostream>

#include "cli/commands.hpp"
#include "cli/new_project.hpp"
#include "lockstep/core/atomic_directory.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kUsageStatus = 2;
/// What the files call the project.
constexpr std::string_view kPlaceholder = "custom_trainer";

constexpr const char* kUsage =
    "usage: lockstep new NAME\n\n"
    "Writes the folder NAME with a project that trains a small model by lockstep::Trainer: CMakeLists.txt "
    "with\n"
    "tests, trainer.cpp with a data set, a loss and a callback of its own, train.sbatch for Slurm, "
    "README.md.\n"
    "It builds and runs as it is.\n\n"
    "  NAME  A folder that is not there yet. Its last part becomes the name of the program: letters, "
    "digits,\n"
    "        '_' and '-', with a letter first.\n";

/// CMake has targets of these names in every project.
bool is_taken_by_cmake(const std::string& name) {
  constexpr std::array<std::string_view, 13> kTargets{
      "all",       "clean",   "help",      "install",    "package",    "package_source", "test",
      "RUN_TESTS", "INSTALL", "ALL_BUILD", "ZERO_CHECK", "edit_cache", "rebuild_cache"};
  return std::find(kTargets.begin(), kTargets.end(), name) != kTargets.end();
}

bool names_a_program(const std::string& name) {
  const auto fits = [](unsigned char sign) { return std::isalnum(sign) != 0 || sign == '_' || sign == '-'; };
  return !name.empty() && std::isalpha(static_cast<unsigned char>(name.front())) != 0 &&
         std::all_of(name.begin(), name.end(), fits);
}

std::string renamed(std::string text, const std::string& name) {
  for (auto at = text.find(kPlaceholder); at != std::string::npos;
       at = text.find(kPlaceholder, at + name.size()))
    text.replace(at, kPlaceholder.size(), name);
  return text;
}

void write_project(const fs::path& folder, const std::string& name) {
  AtomicDirectory project(folder);
  for (const auto& [file, text] : project_files()) {
    write_atomically(project.path() / file, renamed(text, name));
  }
  project.commit();
}

}  // namespace

int new_command(const Words& words, std::ostream& out, std::ostream& err) {
  const bool help = words.size() == 1 && (words[0] == "--help" || words[0] == "-h");
  if (help || words.size() != 1) {
    (help ? out : err) << kUsage;
    return help ? 0 : kUsageStatus;
  }
  const fs::path folder = fs::path(words[0]).lexically_normal();
  const std::string name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  if (!names_a_program(name)) {
    err << "lockstep new: '" << words[0]
        << "' does not end in a program's name: letters, digits, '_' and '-', with a letter first.\n";
    return kUsageStatus;
  }
  if (is_taken_by_cmake(name)) {
    err << "lockstep new: CMake has a target '" << name
        << "' of its own in every project: choose another name.\n";
    return kUsageStatus;
  }
  if (fs::exists(fs::symlink_status(folder))) {
    err << "lockstep new: " << folder.string() << " is there already: nothing is written over.\n";
    return kUsageStatus;
  }
  write_project(folder, name);
  out << "wrote " << folder.string() << ": see its README.md\n";
  return 0;
}

}  // namespace lockstep::launch
