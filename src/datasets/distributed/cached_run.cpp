#include "datasets/distributed/cached_run.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "core/elastic/recovery_messages.hpp"
#include "core/json_text.hpp"
#include "core/parallel_for.hpp"
#include "datasets/cache/cache_folder.hpp"
#include "datasets/distributed/cache_entry_writer.hpp"
#include "datasets/distributed/shared_folder_group.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/progress_bar.hpp"

namespace lockstep {
namespace {

// Few enough that the cost per file is negligible; enough that all workers stay busy and a kill loses little.
constexpr std::int64_t kUsualShards = 64;
constexpr std::int64_t kFewestRows = 1'000;
constexpr std::int64_t kMostRows = 100'000;

std::int64_t divided_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = RunningClock;

constexpr auto kLongestRunPause = 50ms;
constexpr auto kLookInterval = 500ms;
constexpr auto kLeaseInterval = 1s;
/// How many finished shards of a worker may wait for the disk.
constexpr std::size_t kCommitting = 8;
/// A network file system may show a new file to other hosts only after its attribute cache expires.
constexpr auto kVisible = 60s;

/// Marks of entries that this process reads. They stay until the process ends, because nothing reports when a
/// data set is destroyed.
struct HeldEntries {
  std::mutex mutex;
  std::map<fs::path, CacheUse> marks;
};

HeldEntries& held_entries() {
  static HeldEntries held;
  return held;
}

/// For an entry that could not be computed.
void release_entry(const fs::path& entry) {
  auto& held = held_entries();
  const std::lock_guard lock(held.mutex);
  held.marks.erase(entry);
}

class CachedRun {
 public:
  CachedRun(const ShardedWork& work, const DistributedContext& ranks, const CachedRunOptions& options,
            WorkSession& session)
      : work_(work),
        ranks_(ranks),
        options_(options),
        session_(session),
        probe_(session, options.cache),
        entry_(options.cache / work.manifest.key),
        writer_(work, entry_, options.limit, probe_.group().leads) {
    for (const auto& task : work.tasks) rows_ += task.rows;
  }

  fs::path run() {
    try {
      mark();
      if (probe_.group().leads) {
        lead();
      } else {
        follow();
      }
      probe_.wait_for_all();
      return entry_;
    } catch (...) {
      leave_nothing();
      throw;
    }
  }

 private:
  std::string key(const std::string& name) const { return session_.key(probe_.group().prefix + name); }
  std::string claim_key(std::size_t turn) const { return key(fmt::format("claim/{}", turn)); }
  std::string done_key(const ShardTask& task) const { return key(fmt::format("done/{}", task.number)); }
  bool is_set(const std::string& name) const { return session_.store().contains(key(name)); }
  std::int64_t count(const std::string& name) const { return session_.store().add(key(name), 0); }

  std::string progress_text() const { return fmt::format("{} of {} rows", writer_.rows_done(), rows_); }

  void mark() const {
    if (options_.mark) options_.mark(entry_);
  }

  /// Removes the folder of an entry that does not exist, unless another process has its lease or mark in it.
  void leave_nothing() const {
    std::error_code failure;
    if (fs::exists(entry_ / "manifest.json", failure) || failure) return;
    release_entry(entry_);
    fs::remove(entry_, failure);
  }

  void lead() {
    if (!hit(nullptr)) compute();
    session_.store().set(key("finished"), "");
  }

  bool hit(const Lease* lease) { return options_.load_from_cache && writer_.is_sound(lease != nullptr); }

  void compute() {
    const auto begin = Clock::now();
    std::unique_ptr<Lease> lease;
    do {
      lease = take_lease();
      mark();
      // The previous holder of the lease may have finished the work.
      if (hit(lease.get())) return;
    } while (!lease);
    try {
      write(*lease);
      writer_.finish(std::chrono::duration<double>(Clock::now() - begin).count());
    } catch (...) {
      if (lease->held()) writer_.remove_if_empty();
      throw;
    }
  }

  void write(const Lease& lease) {
    writer_.begin(!options_.load_from_cache);
    const auto missing = writer_.missing();
    initial_rows_ = writer_.rows_done();
    open_bar();
    session_.store().set(key("plan"), json_text(nlohmann::json(missing)));
    work_on(missing, &lease);
    wait_for_the_others(missing);
    bar_.reset();
    writer_.align(Worker{.rank = ranks_.rank, .count = ranks_.size, .process = ranks_.rank});
  }

  /// Null if another process has finished the work meanwhile.
  std::unique_ptr<Lease> take_lease() {
    LeaseAcquirer acquirer(entry_, options_.lease);
    std::unique_ptr<Lease> lease;
    auto try_at = Clock::now();
    session_.wait_until(
        [&] {
          if (Clock::now() < try_at) return hit(nullptr);
          try_at = Clock::now() + kLeaseInterval;
          lease = acquirer.try_take();
          return lease != nullptr;
        },
        [&] { return "for " + process_text(acquirer.holder().process) + ": " + progress_text(); },
        [] { return std::vector<int>{}; });
    return lease;
  }

  void follow() {
    const auto leader = [&] { return std::vector<int>{probe_.group().leader}; };
    const auto text = [&] { return fmt::format("for rank {}: {}", probe_.group().leader, progress_text()); };
    session_.wait_until([&] { return is_set("plan") || is_set("finished"); }, text, leader);
    mark();
    if (is_set("plan"))
      work_on(nlohmann::json::parse(session_.store().get(key("plan"))).get<std::vector<std::size_t>>(),
              nullptr);
    session_.wait_until([&] { return is_set("finished"); }, text, leader);
    wait_until_visible();
  }

  void wait_until_visible() const {
    for (const auto limit = Clock::now() + kVisible; !writer_.is_complete();) {
      if (Clock::now() >= limit) {
        throw Error(
            fmt::format("{}: rank {} does not see the result in '{}', though rank {} has finished it there. "
                        "Is the file system in order?",
                        work_.what, ranks_.rank, entry_.string(), probe_.group().leader));
      }
      std::this_thread::sleep_for(kLongestRunPause);
    }
  }

  /// Claims the next shard; null if none is left.
  const ShardTask* claim(const std::vector<std::size_t>& indices) {
    const auto turn = static_cast<std::size_t>(session_.store().add(key("claimed"), 1) - 1);
    if (turn >= indices.size()) return nullptr;
    session_.store().set(claim_key(turn), std::to_string(ranks_.rank));
    return &work_.tasks[indices[turn]];
  }

  void serve(const Worker& worker, const std::vector<std::size_t>& indices, const std::atomic<bool>& stop) {
    ShardFunction compute;
    std::optional<WorkFolder> folder;
    // The worker computes the next shard while earlier ones are committed.
    std::deque<std::future<void>> committing;
    while (const ShardTask* task = stop ? nullptr : claim(indices)) {
      if (!compute) {
        folder.emplace(entry_, worker);
        compute = work_.start(worker);
      }
      const fs::path file = folder->file_of(*task);
      auto commit = [this, task, file, rows = compute(*task, file, stop)] {
        writer_.commit(*task, file, rows);
        note_done(*task);
      };
      // The first shard is committed before the next is computed: it shows whether the rest fits on the disk.
      if (!writer_.has_checked_room()) {
        commit();
        continue;
      }
      committing.push_back(std::async(std::launch::async, std::move(commit)));
      if (committing.size() <= kCommitting) continue;
      committing.front().get();
      committing.pop_front();
    }
    for (auto& each : committing) each.get();
  }

  void note_done(const ShardTask& task) const {
    session_.store().set(done_key(task), "");
    session_.store().add(key("rows"), task.rows);
    session_.store().add(key("shards"), 1);
  }

  void work_on(const std::vector<std::size_t>& indices, const Lease* lease) {
    const auto workers = make_workers(ranks_, options_.threads, options_.devices);
    ThreadPool pool(workers.size(), [&](std::size_t thread, const std::atomic<bool>& stop) {
      serve(workers[thread], indices, stop);
    });
    auto look_at = Clock::now() + kLookInterval;
    while (!pool.wait_for(kLongestRunPause)) {
      show_progress();
      if (Clock::now() < look_at) continue;
      look_at = Clock::now() + kLookInterval;
      pool.rethrow();
      look_or_tell(lease);
    }
    pool.rethrow();
  }

  /// Tells the other ranks first: this rank's workers may take long to stop.
  void look_or_tell(const Lease* lease) {
    try {
      look(lease);
    } catch (const std::exception& error) {
      session_.tell(error.what());
      throw;
    }
  }

  void look(const Lease* lease) {
    session_.check();
    session_.check_neighbour("computing: " + progress_text());
    if (lease == nullptr || lease->held()) return;
    throw Error(work_.what + ": another process has taken the lease of '" + entry_.string() +
                "': this one had been stopped for too long.");
  }

  void wait_for_the_others(const std::vector<std::size_t>& indices) {
    session_.wait_until(
        [&] {
          show_progress();
          return count("shards") == static_cast<std::int64_t>(indices.size());
        },
        [&] { return "for the other ranks: " + progress_text(); }, [&] { return busy_ranks(indices); });
  }

  /// The ranks that have claimed a shard and not finished it.
  std::vector<int> busy_ranks(const std::vector<std::size_t>& indices) const {
    std::set<int> ranks;
    for (std::size_t turn = 0; turn < indices.size(); ++turn) {
      auto& store = session_.store();
      if (!store.contains(done_key(work_.tasks[indices[turn]])) && store.contains(claim_key(turn)))
        ranks.insert(std::stoi(store.get(claim_key(turn))));
    }
    return {ranks.begin(), ranks.end()};
  }

  void open_bar() {
    if (!options_.progress || ranks_.rank != 0) return;
    bar_.emplace(ProgressBarOptions{.description = options_.description,
                                    .total = static_cast<std::uint64_t>(rows_),
                                    .initial = static_cast<std::uint64_t>(initial_rows_),
                                    .unit = "row"});
  }

  void show_progress() {
    if (!bar_) return;
    const auto done = static_cast<std::uint64_t>(initial_rows_ + count("rows"));
    if (done > bar_->count()) bar_->advance(done - bar_->count());
  }

  const ShardedWork& work_;
  const DistributedContext& ranks_;
  const CachedRunOptions& options_;
  WorkSession& session_;
  SharedFolderProbe probe_;
  fs::path entry_;
  CacheEntryWriter writer_;
  std::int64_t rows_ = 0;
  std::int64_t initial_rows_ = 0;
  std::optional<ProgressBar> bar_;
};

}  // namespace

// The result of a map is a sequence of files, its shards. Their bounds are a grid over the source's rows:
//
//     batches   |----|----|----|----|----|----|----|----|--|
//     shards    |--------------|--------------|------------|
//
// The grid depends on the number of rows and on the options alone (both are part of the cache key), never on
// the number of ranks, workers or hosts, so that the same shards result whoever computes them: a job that was
// killed with 8 ranks continues with 3 and finds the finished ones, and another job with other numbers can
// take over. Shards are whole batches, because the function sees batches: another bound would change what it
// is called with. About 64 shards keep all workers busy to the end and lose little in a kill; at least 1,000
// rows, below which a file costs more than its rows; at most 100,000, so that progress shows. Which rank
// computes which shard is decided while they run (claim), and does not matter for the result.
std::vector<ShardTask> shard_grid(std::int64_t rows, std::int64_t batch_rows, std::int64_t shard_rows) {
  const std::int64_t usual = std::clamp(divided_up(rows, kUsualShards), kFewestRows, kMostRows);
  // More than all rows are all rows; the sums below must not overflow.
  const std::int64_t most = std::max<std::int64_t>(rows, 1);
  const std::int64_t batch = std::min(batch_rows, most);
  const std::int64_t step = divided_up(std::min(shard_rows > 0 ? shard_rows : usual, most), batch) * batch;
  std::vector<ShardTask> tasks;
  for (std::int64_t first = 0; first < rows; first += step)
    tasks.push_back({.number = tasks.size(), .first_row = first, .rows = std::min(step, rows - first)});
  return tasks;
}

void hold_entry(const fs::path& entry) {
  auto& held = held_entries();
  const std::lock_guard lock(held.mutex);
  // A new mark each time: the entry may have been removed and written again.
  held.marks.insert_or_assign(entry, CacheUse(entry));
}

fs::path run_cached(const ShardedWork& work, const DistributedContext& ranks,
                    const CachedRunOptions& options) {
  WorkSession session(ranks, work.what, options.session);
  CachedRunOptions how = options;
  // What the ranks have computed anew is what a process that replaces one of them takes.
  if (ranks.alone() && find_variable(process_environment(), elastic::kReplacesVariable))
    how.load_from_cache = true;
  return session.run([&] { return CachedRun(work, ranks, how, session).run(); });
}

}  // namespace lockstep
