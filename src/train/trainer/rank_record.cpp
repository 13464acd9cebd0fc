#include "train/trainer/rank_record.hpp"

#include <fmt/core.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/host_hardware.hpp"
#include "core/host_name.hpp"
#include "core/json_text.hpp"
#include "core/runtime/spent_time.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/version.hpp"
#include "train/trainer/peak_memory.hpp"

namespace lockstep::train {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kOldAfter{5};

/// Whole for whoever reads it, and without a wait for the disk, which checkpoints keep busy.
void write_unsynced(const std::filesystem::path& path, const std::string& text) {
  const auto beside = path.parent_path() / (".lockstep-" + path.filename().string() + ".tmp");
  std::ofstream file(beside, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw Error(fmt::format("'{}' cannot be written", beside.string()));
  std::filesystem::rename(beside, path);
}

}  // namespace

bool writes_files(const TrainingArguments& args) {
  return std::ranges::any_of(args.report_to, [](const std::string& tracker) {
    return tracker == "jsonl" || tracker == "csv" || tracker == "tensorboard";
  });
}

RankRecord::RankRecord(const Accelerator& accelerator, const std::filesystem::path& output_dir,
                       bool continues)
    : accelerator_(accelerator),
      path_(output_dir / "ranks" / fmt::format("rank-{}.json", accelerator.process_index())),
      at_begin_(spent_time()) {
  if (!continues) return;
  std::ifstream file(path_, std::ios::binary);
  if (file) take({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
}

/// A file that something else has written is replaced.
void RankRecord::take(const std::string& before) {
  try {
    const json document = json::parse(before);
    seconds_before_ = document.at("seconds").get<double>();
    before_ = document.at("parts").get<std::map<std::string, double>>();
    recoveries_ = document.at("recoveries").get<std::vector<double>>();
  } catch (const json::exception&) {
    seconds_before_ = 0;
    before_.clear();
    recoveries_.clear();
  }
}

void RankRecord::note_recovery() {
  const std::chrono::duration<double> since_1970 = std::chrono::system_clock::now().time_since_epoch();
  recoveries_.push_back(since_1970.count());
}

std::string RankRecord::text() const {
  auto parts = before_;
  for (const auto& [name, seconds] : spent_time()) {
    const auto begun = at_begin_.find(name);
    parts[name] += seconds - (begun == at_begin_.end() ? 0 : begun->second);
  }
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begin_;
  json document{{"rank", accelerator_.process_index()},
                {"world_size", accelerator_.num_processes()},
                {"host", host_name()},
                {"hardware", json::object()},
                {"lockstep", version()},
                {"libtorch", TORCH_VERSION},
                {"seconds", seconds_before_ + since.count()},
                {"parts", parts},
                {"recoveries", recoveries_},
                {"peak_memory_mib", peak_resident_mib()}};
  for (const auto& [name, value] : host_hardware()) document["hardware"][name] = value;
  if (const auto allocated = peak_allocated_mib(accelerator_.device()))
    document["peak_device_memory_mib"] = *allocated;
  return json_text(document, 1);
}

void RankRecord::write() noexcept {
  if (!can_write_) return;
  try {
    std::filesystem::create_directories(path_.parent_path());
    write_unsynced(path_, text());
  } catch (const std::exception& error) {
    can_write_ = false;
    std::cerr << "lockstep: a report of this training will lack rank " << accelerator_.process_index()
              << "'s time and memory: " << error.what() << std::endl;
  }
  written_ = std::chrono::steady_clock::now();
}

void RankRecord::write_if_old() noexcept {
  if (std::chrono::steady_clock::now() - written_ >= kOldAfter) write();
}

}  // namespace lockstep::train
