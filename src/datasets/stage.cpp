#include "lockstep/datasets/stage.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "datasets/cache/staging.hpp"
#include "datasets/dataset/dataset_access.hpp"
#include "datasets/distributed/run_once_per_node.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Tell = std::function<void(const std::string&)>;
using Clock = RunningClock;

constexpr std::chrono::seconds kTellInterval{1};

/// Publishes progress in the store, at most once per kTellInterval.
std::function<void(std::uint64_t)> teller(const Tell& tell, std::uint64_t bytes) {
  const auto told_at = std::make_shared<Clock::time_point>(Clock::now());
  return [tell, bytes, told_at](std::uint64_t done) {
    if (Clock::now() - *told_at < kTellInterval) return;
    *told_at = Clock::now();
    tell(fmt::format("{} of {} bytes are copied", done, bytes));
  };
}

StagingOptions staging_options(const StageOptions& options) {
  StagingOptions result;
  result.threads = options.threads;
  result.verify = options.verify;
  result.reserve = options.reserve;
  return result;
}

void report(const StagingResult& result, const StageOptions& options) {
  if (!options.report && result.warning.empty()) return;
  std::cerr << fmt::format("lockstep [rank {}]: {}\n", options.ranks.rank, staging_text(result))
            << std::flush;
}

fs::path copy(const StagingPlan& plan, const fs::path& destination, const StageOptions& options,
              const Tell& tell) {
  StagingOptions how = staging_options(options);
  how.progress = teller(tell, plan.bytes());
  const StagingResult result = stage_files(plan, destination, how);
  report(result, options);
  return result.folder;
}

/// Whether all columns are mapped from Arrow files. Columns read from text or created in memory have no file
/// to copy.
bool is_mapped(const ArrowDataset& dataset) {
  const auto& state = DatasetAccess::state(dataset);
  return state.sources.empty() &&
         std::all_of(state.columns.begin(), state.columns.end(),
                     [](const auto& column) { return column.second.data()->source_files() != nullptr; });
}

/// A plan with the files of a data set; empty if they are not in one folder.
StagingPlan plan_of(const ArrowDataset& dataset) {
  StagingPlan plan;
  if (!is_mapped(dataset)) return plan;
  for (const auto& file : dataset.files()) {
    const StagingPlan one = plan_staging(file);
    if (!plan.source.empty() && one.source != plan.source) return {};
    plan.source = one.source;
    plan.files.insert(plan.files.end(), one.files.begin(), one.files.end());
  }
  return plan;
}

ArrowDataset load_files(const fs::path& folder, const StagingPlan& plan) {
  std::vector<fs::path> files;
  for (const auto& file : plan.files) files.push_back(folder / file.path);
  LoadOptions options;
  options.format = FileFormat::arrow;
  return ArrowDataset::load(files, options);
}

/// Whether the data set is exactly the rows and columns of its files.
bool is_its_files(const ArrowDataset& dataset, const StagingPlan& plan) {
  if (plan.files.empty() || dataset.has_indices()) return false;
  const ArrowDataset whole = load_files(plan.source, plan);
  return whole.num_rows() == dataset.num_rows() && whole.features() == dataset.features() &&
         whole.fingerprint() == dataset.fingerprint();
}

/// Writes the rows to new files, unless that was done before.
void write_rows(const ArrowDataset& dataset, const fs::path& folder) {
  make_staging_parent(folder);
  if (fs::exists(folder / "state.json")) return;
  dataset.save_to_disk(folder);
}

}  // namespace

fs::path stage(const fs::path& source, const fs::path& destination, const StageOptions& options) {
  return run_once_per_node(options.ranks, "stage '" + source.string() + "'", [&](const Tell& tell) {
    const fs::path folder =
        destination.empty() ? default_staging_folder(source, process_environment()) : destination;
    return copy(plan_staging(source, options.all), folder, options, tell).string();
  });
}

ArrowDataset stage(const ArrowDataset& dataset, const fs::path& destination, const StageOptions& options) {
  const std::string fingerprint = dataset.fingerprint();
  const StagingPlan plan = plan_of(dataset);
  const bool whole = is_its_files(dataset, plan);
  const fs::path parent =
      destination.empty() ? default_staging_folder("data", process_environment()) : destination;
  const fs::path folder =
      run_once_per_node(options.ranks, "stage data set " + fingerprint, [&](const Tell& tell) {
        const fs::path own = parent / fingerprint;
        if (whole) return copy(plan, own, options, tell).string();
        write_rows(dataset, own);
        return own.string();
      });
  return (whole ? load_files(folder, plan) : ArrowDataset::load(folder)).with_split(dataset.split());
}

}  // namespace lockstep
