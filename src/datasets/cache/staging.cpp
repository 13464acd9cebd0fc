#include "datasets/cache/staging.hpp"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/atomic_directory.hpp"
#include "core/available_cpus.hpp"
#include "core/byte_size.hpp"
#include "core/checksum.hpp"
#include "core/file_system.hpp"
#include "core/json_text.hpp"
#include "core/lease.hpp"
#include "core/parallel_for.hpp"
#include "datasets/cache/file_copy.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr char kRecord[] = ".lockstep-staged.json";
constexpr char kCopies[] = "files";
constexpr int kFewestThreads = 4;
constexpr int kMostThreads = 16;
constexpr auto kPause = 20ms;
constexpr auto kLeasePause = 200ms;

json describe(const StagingPlan& plan) {
  json files = json::array();
  for (const auto& file : plan.files) {
    json each = {{"path", utf8_text(file.path.string())}, {"bytes", file.bytes}};
    if (file.crc32c) {
      each["crc32c"] = checksum_text(*file.crc32c);
    } else {
      each["version"] = file.version;
    }
    files.push_back(std::move(each));
  }
  return {{"format", "lockstep-staged"},
          {"version", 1},
          {"source", utf8_text(plan.source.string())},
          {"files", files}};
}

json read_record(const fs::path& folder) {
  std::ifstream file(folder / kRecord);
  return json::parse(file, nullptr, false);
}

/// Whether the destination already has what the plan would copy.
bool is_staged(const StagingPlan& plan, const fs::path& destination) {
  if (read_record(destination) != describe(plan)) return false;
  return std::all_of(plan.files.begin(), plan.files.end(), [&](const StagedFile& file) {
    std::error_code failure;
    return fs::file_size(destination / file.path, failure) == file.bytes && !failure;
  });
}

/// Throws UsageError for a folder with content that is not a staged copy.
void check_destination(const fs::path& destination) {
  std::error_code failure;
  if (!fs::exists(destination, failure)) return;
  const bool empty = fs::is_directory(destination, failure) && fs::is_empty(destination, failure);
  if (empty || read_record(destination).is_object()) return;
  throw UsageError("'" + destination.string() +
                   "' already exists and is not a staged copy. Name another folder, or remove it.");
}

void check_not_inside(const StagingPlan& plan, const fs::path& destination) {
  if (plan.of_one_file) return;
  std::error_code failure;
  const fs::path whole = fs::weakly_canonical(destination, failure);
  const auto relative = whole.lexically_relative(plan.source);
  if (failure || relative.empty() || *relative.begin() == "..") return;
  throw UsageError("'" + destination.string() + "' is inside the source. Name another folder.");
}

/// Empty if there is enough space; otherwise the warning.
std::string lack_of_room(const StagingPlan& plan, const fs::path& folder, std::uint64_t reserve) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) < 0) return "";
  const auto room = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (plan.bytes() + reserve <= room) return "";
  return fmt::format(
      "{} bytes do not fit on the disk of '{}', which has {} left{}: '{}' is read from where it is",
      plan.bytes(), folder.string(), room,
      reserve > 0 ? fmt::format(" ({} of them to stay free)", reserve) : "", plan.source.string());
}

/// Copies files in several threads.
class Copies {
 public:
  Copies(const StagingPlan& plan, fs::path folder, const StagingOptions& options)
      : plan_(plan), folder_(std::move(folder)), options_(options) {}

  void run() {
    ThreadPool pool(thread_count(), [this](std::size_t, const std::atomic<bool>& stop) {
      for (auto i = next_++; i < plan_.files.size() && !stop; i = next_++) copy(plan_.files[i], stop);
    });
    bool stopped = false;
    // `stop` is asked before the first wait, so that copies that finish at once can be stopped too.
    do {
      stopped = stopped || (options_.stop && options_.stop());
      if (stopped) pool.stop();
      if (options_.progress) options_.progress(done_);
    } while (!pool.wait_for(kPause));
    pool.rethrow();
    // The pool may also stop between two files, without an exception.
    if (stopped) fail_stopped();
  }

 private:
  std::size_t thread_count() const {
    int threads = options_.threads;
    if (threads <= 0)
      threads = std::clamp(available_cpus(process_environment()), kFewestThreads, kMostThreads);
    return std::min(static_cast<std::size_t>(threads), std::max<std::size_t>(plan_.files.size(), 1));
  }

  void copy(const StagedFile& file, const std::atomic<bool>& stop) {
    const fs::path from = plan_.source / file.path, to = folder_ / file.path;
    // The kernel may copy if no checksum has to be computed from the bytes.
    const bool by_kernel = file.crc32c.has_value() || !options_.verify;
    const auto seen = copy_bytes(from, to, by_kernel, [&](std::uint64_t bytes) {
      if (stop) fail_stopped();
      done_ += bytes;
    });
    check(file, to, file.crc32c.value_or(seen));
  }

  [[noreturn]] void fail_stopped() const {
    throw Error("the copying of '" + plan_.source.string() + "' was stopped.");
  }

  void check(const StagedFile& file, const fs::path& copy, std::uint32_t expected) const {
    const std::string names =
        "'" + copy.string() + "', the copy of '" + (plan_.source / file.path).string() + "', ";
    const auto bytes = fs::file_size(copy);
    if (bytes != file.bytes) {
      throw DataError(fmt::format("{}has {} bytes, expected {}. Is another process writing the source?",
                                  names, bytes, file.bytes));
    }
    if (!options_.verify) return;
    const auto found = digest_of(copy).crc32c;
    if (found == expected) return;
    throw DataError(names + "has the checksum " + checksum_text(found) + ", expected " +
                    checksum_text(expected) + ". The source or a disk is damaged.");
  }

  const StagingPlan& plan_;
  fs::path folder_;
  const StagingOptions& options_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint64_t> done_{0};
};

/// The folder for unfinished copies. One process holds it at a time and removes it at the end.
class StagingArea {
 public:
  /// The lease stays null if another process has staged the data meanwhile.
  StagingArea(const StagingPlan& plan, const fs::path& destination, const StagingOptions& options)
      : path_(destination.string() + ".staging") {
    LeaseAcquirer acquirer(path_);
    while (!(lease_ = acquirer.try_take())) {
      if (options.stop && options.stop())
        throw Error("waiting for " + process_text(acquirer.holder().process) + ", which stages '" +
                    destination.string() + "', was stopped.");
      std::this_thread::sleep_for(kLeasePause);
      if (is_staged(plan, destination)) return;
    }
  }
  ~StagingArea() {
    if (!lease_) return;
    lease_.reset();
    std::error_code ignored;
    // Fails if another process has taken the lease meanwhile: the folder is then not empty.
    fs::remove(path_, ignored);
  }
  StagingArea(const StagingArea&) = delete;
  StagingArea& operator=(const StagingArea&) = delete;

  fs::path copies() const { return path_ / kCopies; }
  bool held() const { return lease_ && lease_->held(); }

 private:
  fs::path path_;
  std::unique_ptr<Lease> lease_;
};

void copy_all(const StagingPlan& plan, const fs::path& folder, const StagingOptions& options) {
  std::set<fs::path> folders;
  for (const auto& file : plan.files) folders.insert(folder / file.path.parent_path());
  for (const auto& each : folders) file_system::make_folders(each);
  Copies(plan, folder, options).run();
  write_atomically(folder / kRecord, json_text(describe(plan), 2) + "\n");
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

StagingResult stage_files(const StagingPlan& plan, const fs::path& given, const StagingOptions& options) {
  const auto begin = Clock::now();
  fs::path destination = given.lexically_normal();
  if (!destination.has_filename()) destination = destination.parent_path();
  check_not_inside(plan, destination);
  make_staging_parent(destination);
  check_destination(destination);
  StagingResult result;
  result.folder = destination;
  result.files = plan.files.size();
  result.bytes = plan.bytes();
  if (is_staged(plan, destination)) return result;
  result.warning = lack_of_room(plan, file_system::parent_of(destination), options.reserve);
  if (!result.warning.empty()) {
    result.folder = plan.source;
    return result;
  }
  const StagingArea area(plan, destination, options);
  if (area.held() && !is_staged(plan, destination)) {
    AtomicDirectory folder(destination, area.copies());
    copy_all(plan, folder.path(), options);
    folder.commit();
    result.copied = true;
  }
  result.seconds = seconds_since(begin);
  return result;
}

std::string staging_text(const StagingResult& result) {
  if (!result.warning.empty()) return "not staged: " + result.warning;
  const std::string what =
      fmt::format("{} file{}, {}", result.files, result.files == 1 ? "" : "s", bytes_text(result.bytes));
  if (!result.copied) return fmt::format("{} staged already in '{}'", what, result.folder.string());
  const double rate = result.seconds > 0 ? static_cast<double>(result.bytes) / result.seconds : 0;
  return fmt::format("staged {} in {:.2f} s ({}/s) to '{}'", what, result.seconds,
                     bytes_text(static_cast<std::uint64_t>(rate)), result.folder.string());
}

}  // namespace lockstep
