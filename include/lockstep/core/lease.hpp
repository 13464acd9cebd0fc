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

#include "lockstep/core/process_identity.hpp"

namespace lockstep {

/// How leases of a folder are taken. All who use one folder should agree on both times.
struct LeaseOptions {
  /// How often a holder shows that it lives.
  std::chrono::milliseconds beat{2'000};
  /// A holder that has shown nothing for so long, and of which nothing else is known, is taken for dead.
  std::chrono::milliseconds stale_after{15'000};
};

/// Who has a lease.
struct LeaseHolder {
  ProcessIdentity process;
  /// Unlike any other lease's.
  std::string token;
};

/// The right to be the only writer in a folder, across hosts and jobs, for as long as it lives.
///
/// A lease is a file `lease.<n>` in the folder, made with O_CREAT | O_EXCL, which network file systems keep
/// (flock() they often grant to everybody). It holds JSON: who the holder is. A thread sets its time of last
/// change once a beat. The file with the highest number counts. A lease is left by removing the file; it is
/// taken from a dead holder by making the next number, which only one process can, and the old file goes.
///
/// A holder that was stopped for so long that another took the lease finds out with the next beat: held()
/// is false from then on. Until then both believe to hold it, so what is written in the folder must be safe
/// to be written twice. Everything is *Local*; held() for any thread.
class Lease {
 public:
  /// Gives it back. What cannot be removed goes stale.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  /// False once another has taken it.
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

/// Tries for the lease of a folder, and watches who has it meanwhile. A holder is dead when it is gone from
/// this host, or when its file has not changed between tries for `stale_after` by this process's own clock:
/// clocks of other hosts do not matter. *Local*; one thread at a time.
class LeaseAcquirer {
 public:
  explicit LeaseAcquirer(std::filesystem::path folder, LeaseOptions options = {});

  /// The lease, or null while somebody has it who is not known to be dead. To be called about once a second.
  /// Throws Error, naming the folder and the system's reason, when nothing can be written there.
  std::unique_ptr<Lease> try_take();

  /// Who had it at the last try that gave null.
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

/// The living holder of a folder's lease, from one look: a holder on another host counts as living when its
/// file changed within the last 5 minutes by this host's clock. *Local*.
std::optional<LeaseHolder> live_lease(const std::filesystem::path& folder);

/// The lease of a folder, which is made where needed. Waits up to `timeout` for who holds it: a process that
/// was killed a moment ago may still be ending, and one of a host that is gone goes stale first. Throws
/// UsageError naming the holder when the lease is not to be had. *Local*.
std::unique_ptr<Lease> acquire_lease(const std::filesystem::path& folder,
                                     std::chrono::milliseconds timeout = std::chrono::seconds(20),
                                     LeaseOptions options = {});

}  // namespace lockstep
