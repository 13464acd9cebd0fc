#include "core/lease.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/file_system.hpp"
#include "core/json_text.hpp"
#include "core/running_clock.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using file_system::reason;
using file_system::uninterrupted;

constexpr char kPrefix[] = "lease.";
/// Longer than a paused heartbeat and the difference between two clocks.
constexpr std::chrono::seconds kFresh{300};

[[noreturn]] void fail_to_write(const fs::path& file, int error) {
  throw Error(fmt::format("cannot write '{}': {}.", file.string(), reason(error)));
}

fs::path lease_file(const fs::path& folder, std::uint64_t number) {
  return folder / (fmt::format("{}{}", kPrefix, number));
}

/// The number in a lease's file name; 0 for any other name.
std::uint64_t number_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return 0;
  const auto digits = std::string_view(name).substr(std::string_view(kPrefix).size());
  return parse_number<std::uint64_t>(digits).value_or(0);
}

/// The number of the valid lease, or 0.
std::uint64_t highest(const fs::path& folder) {
  std::uint64_t result = 0;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure))
    result = std::max(result, number_of(entry.path().filename()));
  return result;
}

/// The holder; without a token if the file is missing or not yet complete.
LeaseHolder read_holder(const fs::path& file) {
  std::ifstream stream(file);
  const auto json = nlohmann::json::parse(stream, nullptr, false);
  LeaseHolder holder;
  if (!json.is_object() || !json.contains("token")) return holder;
  try {
    json.at("process").get_to(holder.process);
    json.at("token").get_to(holder.token);
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return holder;
}

/// Modification time in nanoseconds, or -1 if the file is missing.
std::int64_t last_change(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) < 0) return -1;
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

std::string new_token(const ProcessIdentity& process) {
  static std::atomic<unsigned> counter{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return fmt::format("{}-{}-{}-{}", process.host, process.pid, now, counter++);
}

/// Creates the file. Returns false if it exists or the folder is missing.
bool create(const fs::path& file, const std::string& text) {
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  const FileDescriptor descriptor(uninterrupted([&] { return ::open(file.c_str(), flags, 0666); }));
  if (!descriptor && (errno == EEXIST || errno == ENOENT)) return false;
  if (!descriptor) fail_to_write(file, errno);
  const int error = file_system::write_all(descriptor.get(), text);
  if (error == 0) return true;
  ::unlink(file.c_str());
  fail_to_write(file, error);
}

/// Pause between two tries to acquire a lease.
constexpr std::chrono::milliseconds kPause{50};

/// The time that RunningClock shows: whoever was paused together with the holder has not seen it silent.
std::chrono::steady_clock::time_point running_now() {
  return std::chrono::steady_clock::time_point(RunningClock::now().time_since_epoch());
}

}  // namespace

Lease::Lease(fs::path folder, std::uint64_t number, std::string token, std::chrono::milliseconds beat)
    : folder_(std::move(folder)), number_(number), token_(std::move(token)) {
  thread_ = std::thread([this, beat] { beat_until_end(beat); });
}

Lease::~Lease() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ending_.notify_one();
  thread_.join();
  const fs::path file = lease_file(folder_, number_);
  if (held_ && read_holder(file).token == token_) ::unlink(file.c_str());
}

void Lease::beat_until_end(std::chrono::milliseconds beat) {
  const fs::path file = lease_file(folder_, number_);
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, beat, [&] { return end_; })) {
    // A failure to update the file does not lose the lease; a file with a higher number does.
    ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0);
    if (highest(folder_) > number_) held_ = false;
  }
}

LeaseAcquirer::LeaseAcquirer(fs::path folder, LeaseOptions options)
    : folder_(std::move(folder)), options_(options) {}

/// Takes the lease if nobody has it. The only tool is exclusive creation of files (O_EXCL), which network
/// file systems support: locks of the kernel are missing on some of them, or end silently with a connection.
///
/// A lease is a file with a number in its name; the highest one counts. Its holder touches it and gives up
/// when it sees a higher one (beat_until_end). Two processes could race:
///
///   - Two take over one stale lease n: both create n + 1, and exclusive creation lets one succeed.
///   - A slow process finds n stale, and creates n + 1 long after another took over, worked and removed
///     all. By then file n is gone, or is that of a live holder which found no lease and began again at 1.
///     So whoever takes over compares the token in file n once more after the creation, and whoever finds
///     no lease and creates 1 looks again for a higher number. A process that sees another holder then
///     returns null; the destructor of its Lease removes its file.
///
/// Stale means: the process is known to be dead (same host, boot and pid namespace), or nothing is known
/// about it and the file has not changed for `stale_after` while this process watched and was not paused
/// itself. A process known to be alive is never stale. Ages are not computed from the file's time, because
/// the clocks of hosts and of the file server differ.
std::unique_ptr<Lease> LeaseAcquirer::try_take() {
  file_system::make_folders(folder_);
  const std::uint64_t last = highest(folder_);
  if (last == 0) {
    auto lease = make(1);
    // Another process may have taken over a stale lease, removed since, and already have the next number.
    if (lease && highest(folder_) > 1) return nullptr;
    return lease;
  }
  const fs::path file = lease_file(folder_, last);
  if (!is_stale(file)) return nullptr;
  const LeaseHolder dead = holder_;
  auto lease = make(last + 1);
  // By now the number may be that of a live holder that found no lease at all.
  if (!lease || read_holder(file).token != dead.token) return nullptr;
  ::unlink(file.c_str());
  return lease;
}

bool LeaseAcquirer::is_stale(const fs::path& file) {
  LeaseHolder now = read_holder(file);
  const std::int64_t change = last_change(file);
  if (now.token != holder_.token || change != seen_change_) {
    seen_change_ = change;
    seen_at_ = running_now();
  }
  holder_ = std::move(now);
  if (!holder_.token.empty() && liveness_of(holder_.process) == Liveness::dead) return true;
  if (!holder_.token.empty() && liveness_of(holder_.process) == Liveness::alive) return false;
  return running_now() - seen_at_ >= options_.stale_after;
}

std::unique_ptr<Lease> LeaseAcquirer::make(std::uint64_t number) {
  const ProcessIdentity process = this_process();
  const std::string token = new_token(process);
  const std::string text = json_text(nlohmann::json{{"process", process}, {"token", token}}, 2) + "\n";
  if (!create(lease_file(folder_, number), text)) return nullptr;
  return std::unique_ptr<Lease>(new Lease(folder_, number, token, options_.beat));
}

std::optional<LeaseHolder> live_lease(const fs::path& folder) {
  const std::uint64_t last = highest(folder);
  if (last == 0) return std::nullopt;
  const fs::path file = lease_file(folder, last);
  LeaseHolder holder = read_holder(file);
  const Liveness liveness = holder.token.empty() ? Liveness::unknown : liveness_of(holder.process);
  if (liveness == Liveness::dead) return std::nullopt;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const bool fresh = now - std::chrono::nanoseconds(last_change(file)) < kFresh;
  if (liveness == Liveness::unknown && !fresh) return std::nullopt;
  return holder;
}

std::unique_ptr<Lease> acquire_lease(const fs::path& folder, std::chrono::milliseconds timeout,
                                     LeaseOptions options) {
  LeaseAcquirer acquirer(folder, options);
  const auto deadline = RunningClock::now() + timeout;
  for (;;) {
    if (auto lease = acquirer.try_take()) return lease;
    if (RunningClock::now() >= deadline) break;
    std::this_thread::sleep_for(kPause);
  }
  const LeaseHolder& holder = acquirer.holder();
  throw UsageError(fmt::format(
      "the folder '{}' is in use by {}. Two jobs must not write into one folder: end that job, or "
      "name another folder.",
      folder.string(),
      holder.token.empty() ? "an unknown process"
                           : fmt::format("process {} on {}", holder.process.pid, holder.process.host)));
}

}  // namespace lockstep
