#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/process_identity.hpp"

namespace lockstep {

/// Times of a lease. All processes that use one folder should use the same values.
struct LeaseOptions {
  /// The interval at which a holder updates its lease.
  std::chrono::milliseconds beat{2'000};
  /// A holder that has not updated its lease for this time, and about which nothing else is known, is
  /// considered dead.
  std::chrono::milliseconds stale_after{15'000};
};

/// The holder of a lease.
struct LeaseHolder {
  ProcessIdentity process;
  /// Unique per lease.
  std::string token;
};

/// The right to be the only writer in a folder, across hosts and jobs, for the lifetime of the object.
///
/// A lease is a file `lease.<n>` in the folder, created with O_CREAT | O_EXCL, which network file systems
/// support (flock() they often grant to everyone). It contains JSON that identifies the holder. A thread
/// updates its modification time once per beat. The file with the highest number is the valid one. The holder
/// releases a lease by removing the file. Another process takes over from a dead holder by creating the file
/// with the next number, which only one process can, and removing the old file.
///
/// A holder that was stopped for so long that another process took over finds out at the next beat: held() is
/// false from then on. Until then both hold the lease, so writing the same data twice must be safe. All
/// members are *Local*; held() may be called from any thread.
class Lease {
 public:
  /// Releases the lease. A file that cannot be removed becomes stale.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  /// False after another process has taken over.
  bool held() const noexcept { return held_.load(); }

 private:
  friend class LeaseAcquirer;
  Lease(std::filesystem::path folder, std::uint64_t number, std::string token,
        std::chrono::milliseconds beat);
  void beat_until_end(std::chrono::milliseconds beat);

  std::filesystem::path folder_;
  std::uint64_t number_;
  std::string token_;
  std::atomic<bool> held_{true};
  std::mutex mutex_;
  std::condition_variable ending_;
  bool end_ = false;
  std::thread thread_;
};

/// Tries to acquire the lease of a folder, and observes its holder between the tries. A holder is dead if its
/// process on this host has ended, or if its file has not changed between tries for `stale_after` by this
/// process's clock: clocks of other hosts do not matter. *Local*; one thread at a time.
class LeaseAcquirer {
 public:
  explicit LeaseAcquirer(std::filesystem::path folder, LeaseOptions options = {});

  /// The lease, or null if a holder that is not known to be dead has it. Call it about once a second. Throws
  /// Error, naming the folder and the system's reason, if the folder is not writable.
  std::unique_ptr<Lease> try_take();

  /// The holder at the last try that returned null.
  const LeaseHolder& holder() const noexcept { return holder_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_stale(const std::filesystem::path& file);
  std::unique_ptr<Lease> make(std::uint64_t number);

  std::filesystem::path folder_;
  LeaseOptions options_;
  LeaseHolder holder_;
  std::int64_t seen_change_ = -1;
  Clock::time_point seen_at_;
};

/// The live holder of a folder's lease, from a single check: a holder on another host counts as live if its
/// file changed within the last 5 minutes by this host's clock. *Local*.
std::optional<LeaseHolder> live_lease(const std::filesystem::path& folder);

/// Acquires the lease of a folder; creates the folder if needed. Waits up to `timeout` for the current
/// holder: a process that was just killed may still be ending, and the lease of a lost host must become stale
/// first. Throws UsageError naming the holder if the lease cannot be acquired. *Local*.
std::unique_ptr<Lease> acquire_lease(const std::filesystem::path& folder,
                                     std::chrono::milliseconds timeout = std::chrono::seconds(20),
                                     LeaseOptions options = {});

}  // namespace lockstep
