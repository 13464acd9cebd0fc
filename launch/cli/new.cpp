#include "cli/new.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "core/atomic_directory.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

/// The project's name in the files.
constexpr std::string_view kPlaceholder = "custom_trainer";

struct NewOptions {
  std::string folder;
  std::string project_template = "trainer";
};

/// A project: the folder under examples with its files, and the example that becomes its program.
struct ProjectTemplate {
  std::string name;
  std::string folder;
  std::string program;
};

const std::vector<ProjectTemplate>& project_templates() {
  static const std::vector<ProjectTemplate> all{{"trainer", "custom_trainer", "custom_trainer/trainer.cpp"},
                                                {"accelerate", "training_loop", "accelerate.cpp"},
                                                {"ddp", "training_loop", "ddp.cpp"}};
  return all;
}

OptionTable<NewOptions> new_options() {
  return OptionTable<NewOptions>("lockstep new",
                                 "Writes a project that trains a small model: CMakeLists.txt with tests, "
                                 "trainer.cpp, train.sbatch "
                                 "for Slurm, README.md. It builds and runs as it is.")
      .argument("NAME", &NewOptions::folder,
                "The folder to create. Its last part names the program: a letter, then letters, digits, '_' "
                "and '-'.")
      .add("template", &NewOptions::project_template,
           "trainer: lockstep::Trainer with a data set, a loss and a callback of its own; accelerate: "
           "Accelerator's loop, with checkpoints and resume; ddp: the plain loop, with ProcessGroup and "
           "DistributedDataParallel.",
           one_of({"trainer", "accelerate", "ddp"}));
}

/// Names of targets that CMake defines in every project.
constexpr const char* kTargetsOfCMake[] = {
    "all",       "clean",   "help",      "install",    "package",    "package_source", "test",
    "RUN_TESTS", "INSTALL", "ALL_BUILD", "ZERO_CHECK", "edit_cache", "rebuild_cache"};

bool names_a_program(const std::string& name) {
  const auto fits = [](unsigned char sign) { return std::isalnum(sign) != 0 || sign == '_' || sign == '-'; };
  return !name.empty() && std::isalpha(static_cast<unsigned char>(name.front())) != 0 &&
         std::ranges::all_of(name, fits);
}

std::string renamed(std::string text, const std::string& name) {
  for (auto at = text.find(kPlaceholder); at != std::string::npos;
       at = text.find(kPlaceholder, at + name.size()))
    text.replace(at, kPlaceholder.size(), name);
  return text;
}

void write_project(const fs::path& folder, const std::string& name, const std::string& template_name) {
  const auto& chosen = *std::ranges::find(project_templates(), template_name, &ProjectTemplate::name);
  AtomicDirectory project(folder);
  const auto write = [&](const std::string& file, const std::string& example) {
    const auto& text = std::ranges::find(project_files(), example, &ProjectFile::name)->text;
    write_atomically(project.path() / file, renamed(text, name));
  };
  for (const std::string file : {"CMakeLists.txt", "README.md", "train.sbatch"})
    write(file, chosen.folder + "/" + file);
  write("trainer.cpp", chosen.program);
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
  if (std::ranges::count(kTargetsOfCMake, name) > 0) {
    throw formatted<UsageError>("CMake has a target '{}' of its own in every project: choose another name.",
                                name);
  }
  if (fs::exists(fs::symlink_status(folder)))
    throw formatted<UsageError>("{} already exists; nothing was overwritten.", folder.string());
  write_project(folder, name, parsed->options.project_template);
  out << "wrote " << folder.string() << ": see its README.md\n";
  return 0;
}

}  // namespace lockstep::launch
