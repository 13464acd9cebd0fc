#include <filesystem>
#include <iomanip>
#include <ostream>
#include <sstream>

#include "checkpoint/merge.hpp"
#include "checkpoint/tensor_diff.hpp"
#include "cli/commands.hpp"
#include "lockstep/checkpoint/checkpoint_folder.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
    "usage: lockstep checkpoint ls FOLDER\n"
    "       lockstep checkpoint verify CHECKPOINT|FOLDER\n"
    "       lockstep checkpoint diff A B\n"
    "       lockstep checkpoint merge FOLDER FILE\n\n"
    "ls      Lists the checkpoints in FOLDER, the newest first.\n"
    "verify  Reads every byte of a checkpoint, or of all in FOLDER, and compares with the checksums. Ends "
    "with\n"
    "        1 when something is damaged.\n"
    "diff    Compares two checkpoints, models or safetensors files tensor by tensor. Ends with 1 when they\n"
    "        differ.\n"
    "merge   Joins the files of a model that was saved in parts (model.safetensors.index.json) into one "
    "FILE.\n";

std::string size_text(std::uintmax_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  std::ostringstream text;
  text << std::fixed << std::setprecision(unit == 0 ? 0 : 1) << size << ' ' << kUnits[unit];
  return text.str();
}

std::uintmax_t bytes_in(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    bytes += entry->is_regular_file(failure) ? entry->file_size(failure) : 0;
  return bytes;
}

std::string line_of(const Checkpoint& checkpoint) {
  const auto& info = checkpoint.info;
  std::ostringstream line;
  line << checkpoint.path.filename().string();
  if (info.sequence == 0) return line.str() + "  manifest damaged: see lockstep checkpoint verify";
  line << "  step " << info.step << "  epoch " << info.epoch << "  ranks " << info.world_size << "  "
       << size_text(bytes_in(checkpoint.path));
  if (info.metric) line << "  metric " << *info.metric;
  if (!info.lockstep_version.empty()) {
    line << "  by lockstep " << info.lockstep_version << ", LibTorch " << info.libtorch_version;
  }
  if (!info.started_from.empty()) line << "  from " << info.started_from;
  return line.str();
}

void demand_folder(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw UsageError("'" + folder.string() + "' is no folder.");
}

int list(const fs::path& folder, std::ostream& out) {
  demand_folder(folder);
  const auto checkpoints = list_checkpoints(folder);
  for (const auto& checkpoint : checkpoints) out << line_of(checkpoint) << '\n';
  if (checkpoints.empty()) out << "no checkpoints in " << folder.string() << '\n';
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

int verify(const fs::path& path, std::ostream& out) {
  demand_folder(path);
  if (fs::exists(path / kManifestFileName)) return verify_one(path, out) ? 0 : 1;
  const auto checkpoints = list_checkpoints(path);
  if (checkpoints.empty()) {
    throw UsageError("verify: '" + path.string() + "' is no checkpoint (it has no " +
                     kManifestFileName + ") and has none in it.");
  }
  bool whole = true;
  for (const auto& checkpoint : checkpoints) whole = verify_one(checkpoint.path, out) && whole;
  return whole ? 0 : 1;
}

int run(const std::string& action, const Words& words, std::ostream& out) {
  if (action == "ls" && words.size() == 1) return list(words[0], out);
  if (action == "verify" && words.size() == 1) return verify(words[0], out);
  if (action == "diff" && words.size() == 2) return print_differences(words[0], words[1], out) ? 1 : 0;
  if (action == "merge" && words.size() == 2) {
    merge_model(words[0], words[1]);
    return 0;
  }
  throw UsageError(std::string("expected ls, verify, diff or merge and its paths.\n") + kUsage);
}

}  // namespace

int checkpoint_command(const Words& words, std::ostream& out, std::ostream&) {
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    out << kUsage;
    return 0;
  }
  return run(words.empty() ? "" : words[0], words.empty() ? words : Words{words.begin() + 1, words.end()},
             out);
}

}  // namespace lockstep::launch
