#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "cli/commands.hpp"
#include "cli/new_project.hpp"
#include "lockstep/core/atomic_directory.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

/// What the files call the project.
constexpr std::string_view kPlaceholder = "custom_trainer";

struct NewOptions {
  std::string folder;
  std::string project_template = "trainer";
};

/// A project: its files, and those under examples/ that they are.
struct ProjectTemplate {
  std::string_view name;
  std::vector<std::pair<std::string_view, std::string_view>> files;
};

const std::vector<ProjectTemplate>& project_templates() {
  static const auto loop = [](std::string_view name, std::string_view program) {
    return ProjectTemplate{name,
                           {{"CMakeLists.txt", "training_loop/CMakeLists.txt"},
                            {"README.md", "training_loop/README.md"},
                            {"train.sbatch", "training_loop/train.sbatch"},
                            {"trainer.cpp", program}}};
  };
  static const std::vector<ProjectTemplate> all{{"trainer",
                                                 {{"CMakeLists.txt", "custom_trainer/CMakeLists.txt"},
                                                  {"README.md", "custom_trainer/README.md"},
                                                  {"train.sbatch", "custom_trainer/train.sbatch"},
                                                  {"trainer.cpp", "custom_trainer/trainer.cpp"}}},
                                                loop("accelerate", "accelerate.cpp"),
                                                loop("ddp", "ddp.cpp")};
  return all;
}

OptionTable<NewOptions> new_options() {
  return OptionTable<NewOptions>("lockstep new",
                                 "Writes a project that trains a small model: CMakeLists.txt with tests, "
                                 "trainer.cpp, train.sbatch "
                                 "for Slurm, README.md. It builds and runs as it is.")
      .argument("NAME", &NewOptions::folder,
                "A folder that is not there yet. Its last part becomes the name of the program: letters, "
                "digits, '_' and '-', with a letter first.")
      .add("template", &NewOptions::project_template,
           "trainer: lockstep::Trainer with a data set, a loss and a callback of its own; accelerate: "
           "Accelerator's loop, with checkpoints to go on from; ddp: the plain loop, by ProcessGroup and "
           "DistributedDataParallel.",
           one_of({"trainer", "accelerate", "ddp"}));
}

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

const std::string& example_text(std::string_view name) {
  const auto& files = project_files();
  return std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.name == name; })->text;
}

void write_project(const fs::path& folder, const std::string& name, std::string_view template_name) {
  const auto& all = project_templates();
  const auto& chosen = *std::find_if(all.begin(), all.end(),
                                     [&](const auto& candidate) { return candidate.name == template_name; });
  AtomicDirectory project(folder);
  for (const auto& [file, example] : chosen.files)
    write_atomically(project.path() / file, renamed(example_text(example), name));
  project.commit();
}

}  // namespace

int new_command(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(new_options(), words, out);
  if (!parsed) return 0;
  const fs::path folder = fs::path(parsed->options.folder).lexically_normal();
  const std::string name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  if (!names_a_program(name)) {
    throw formatted<UsageError>(
        "'{}' does not end in a program's name: letters, digits, '_' and '-', with a letter first.",
        parsed->options.folder);
  }
  if (is_taken_by_cmake(name)) {
    throw formatted<UsageError>("CMake has a target '{}' of its own in every project: choose another name.",
                                name);
  }
  if (fs::exists(fs::symlink_status(folder)))
    throw formatted<UsageError>("{} is there already: nothing is written over.", folder.string());
  write_project(folder, name, parsed->options.project_template);
  out << "wrote " << folder.string() << ": see its README.md\n";
  return 0;
}

}  // namespace lockstep::launch
