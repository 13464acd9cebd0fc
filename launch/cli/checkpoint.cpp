#include "cli/checkpoint.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <ostream>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/tensor_files.hpp"
#include "core/byte_size.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

struct Paths {
  std::string first;
  std::string second;
};

using PathsTable = OptionTable<Paths>;

std::uintmax_t bytes_in(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    bytes += entry->is_regular_file(failure) ? entry->file_size(failure) : 0;
  return bytes;
}

std::string line_of(const Checkpoint& checkpoint) {
  const auto& info = checkpoint.info;
  std::string line = checkpoint.path.filename();
  if (info.sequence == 0) return line + "  manifest damaged: see lockstep checkpoint verify";
  line += fmt::format("  step {}  epoch {}  ranks {}  {}", info.step, info.epoch, info.world_size,
                      bytes_text(bytes_in(checkpoint.path)));
  if (info.metric) line += fmt::format("  metric {:g}", *info.metric);
  if (!info.lockstep_version.empty())
    line += fmt::format("  by lockstep {}, LibTorch {}", info.lockstep_version, info.libtorch_version);
  if (!info.started_from.empty()) line += fmt::format("  from {}", info.started_from);
  return line;
}

void demand_folder(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw formatted<UsageError>("'{}' is not a folder.", folder.string());
}

int list_folder(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(
      PathsTable("lockstep checkpoint ls", "Lists the checkpoints in a folder, the newest first.")
          .argument("FOLDER", &Paths::first, "The folder that a trainer saves into."),
      words, out);
  if (!parsed) return 0;
  const fs::path folder = parsed->options.first;
  demand_folder(folder);
  const auto checkpoints = list_checkpoints(folder);
  const auto unfinished = checkpoints_without_manifest(folder);
  for (const auto& path : unfinished)
    out << fmt::format("{}  no {}: nothing resumes from it\n", path.filename().string(), kManifestFileName);
  for (const auto& checkpoint : checkpoints) out << line_of(checkpoint) << '\n';
  if (checkpoints.empty() && unfinished.empty()) out << "no checkpoints in " << folder.string() << '\n';
  return 0;
}

bool verify_one(const fs::path& path, std::ostream& out) {
  try {
    verify_checkpoint(path);
    out << "ok       " << path.string() << std::endl;
    return true;
  } catch (const DataError& error) {
    out << "damaged  " << path.string() << ": " << error.what() << std::endl;
    return false;
  }
}

int verify(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(
      PathsTable("lockstep checkpoint verify",
                 "Reads every byte of a checkpoint, or of all checkpoints in a folder, and verifies the "
                 "checksums. Exits with status 1 if something is damaged.")
          .argument("CHECKPOINT|FOLDER", &Paths::first, "One checkpoint, or a folder of them."),
      words, out);
  if (!parsed) return 0;
  const fs::path path = parsed->options.first;
  demand_folder(path);
  if (fs::exists(path / kManifestFileName)) return verify_one(path, out) ? 0 : 1;
  const auto checkpoints = list_checkpoints(path);
  const auto unfinished = checkpoints_without_manifest(path);
  if (checkpoints.empty() && unfinished.empty()) {
    throw formatted<UsageError>("verify: '{}' is not a checkpoint (it has no {}) and has none in it.",
                                path.string(), kManifestFileName);
  }
  for (const auto& folder : unfinished)
    out << fmt::format("damaged  {}: it has no {}", folder.string(), kManifestFileName) << std::endl;
  bool all_intact = unfinished.empty();
  for (const auto& checkpoint : checkpoints) all_intact = verify_one(checkpoint.path, out) && all_intact;
  return all_intact ? 0 : 1;
}

int diff(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(
      PathsTable("lockstep checkpoint diff",
                 "Compares two checkpoints, models or safetensors files tensor by tensor. Exits with "
                 "status 1 if they differ.")
          .argument("A", &Paths::first, "A checkpoint, a model's folder or a file.")
          .argument("B", &Paths::second, "What it is compared with."),
      words, out);
  if (!parsed) return 0;
  return print_differences(parsed->options.first, parsed->options.second, out) ? 1 : 0;
}

int merge(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(
      PathsTable(
          "lockstep checkpoint merge",
          "Joins the files of a model that was saved in parts (model.safetensors.index.json) into one.")
          .argument("FOLDER", &Paths::first, "The model's folder.")
          .argument("FILE", &Paths::second, "The output file."),
      words, out);
  if (parsed) merge_model(parsed->options.first, parsed->options.second);
  return 0;
}

}  // namespace

int checkpoint_command(const Words& words, std::ostream& out, std::ostream& err) {
  static const std::vector<Command> actions{
      {"ls", "Lists the checkpoints in a folder.", list_folder},
      {"verify", "Reads every byte and verifies the checksums.", verify},
      {"diff", "Compares two checkpoints, models or files tensor by tensor.", diff},
      {"merge", "Merges a sharded model into one file.", merge},
  };
  return run_one_of(actions, "lockstep checkpoint", words, out, err);
}

}  // namespace lockstep::launch
