#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher_process.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

/// A cgroup (v1, or v2 where that is mounted) with one limit, for one process and its children; removed with
/// the object. Only root can make one.
class Cgroup {
 public:
  Cgroup(const std::string& controller, const std::string& v1_file, const std::string& v2_file,
         const std::string& limit) {
    const fs::path v1 = fs::path("/sys/fs/cgroup") / controller;
    const bool old = fs::exists(v1);
    folder_ = (old ? v1 : v1.parent_path()) / ("lockstep_test_" + std::to_string(getpid()));
    std::error_code failure;
    made_ = fs::create_directory(folder_, failure);
    limited_ = made_ && put(old ? v1_file : v2_file, limit);
  }
  ~Cgroup() {
    // Until the kernel has let go of the processes that were in it.
    if (made_) eventually([&] { return rmdir(folder_.c_str()) == 0; });
  }
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;

  bool is_limited() const { return limited_; }
  /// Moves the calling process into it.
  void enter() const { put("cgroup.procs", std::to_string(getpid())); }

 private:
  bool put(const std::string& file, const std::string& value) const {
    std::ofstream out(folder_ / file);
    out << value << std::flush;
    return out.good();
  }

  fs::path folder_;
  bool made_ = false;
  bool limited_ = false;
};

Finished run_in(const Cgroup& cgroup, const std::vector<std::string>& arguments) {
  return LauncherProcess(arguments, {}, [&] { cgroup.enter(); }).wait();
}

TEST(Limits, RankKilledByTheOomKillerIsNamedWithItsMemory) {
  const Cgroup cgroup("memory", "memory.limit_in_bytes", "memory.max", "150M");
  if (!cgroup.is_limited()) GTEST_SKIP() << "no memory cgroup can be made here (that needs root)";
  const Finished job = run_in(cgroup, {"run", "--nproc-per-node=2", "--shutdown-timeout=2", "sh", "-c",
                                       "[ $RANK = 1 ] && exec tail /dev/zero; exec sleep 60"});
  EXPECT_EQ(job.status, 128 + SIGKILL);
  EXPECT_NE(job.err.find("FAILED: rank 1 "), std::string::npos) << job.err;
  EXPECT_NE(job.err.find(
                "killed by the kernel's OOM killer (1 process(es) of this job on this host; this one had 1"),
            std::string::npos)
      << job.err;
}

TEST(Limits, ProcessLimitIsReportedAndNothingIsLeft) {
  const Cgroup cgroup("pids", "pids.max", "pids.max", "8");
  if (!cgroup.is_limited()) GTEST_SKIP() << "no pids cgroup can be made here (that needs root)";
  const Finished job = run_in(cgroup, {"run", "--nproc-per-node=16", "sleep", "60"});
  EXPECT_EQ(job.status, 126);
  EXPECT_NE(job.err.find("fork: Resource temporarily unavailable"), std::string::npos) << job.err;
  EXPECT_NE(job.err.find("pids.max"), std::string::npos) << job.err;
  // ~Cgroup waits until no process is left in it.
}

/// The ranks' errors speak of a closed connection; only the launcher knows why.
TEST(Limits, LauncherThatMayOpenNoMoreFilesSaysSo) {
  LauncherProcess job({"run", "--nproc-per-node=1", "bash", "-c",
                       "for i in {1..18}; do exec {fd}<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT; done; sleep 1"},
                      {}, [] {
                        const rlimit low{24, 24};
                        setrlimit(RLIMIT_NOFILE, &low);
                      });
  const Finished ended = job.wait();
  EXPECT_NE(ended.err.find("this launcher may open no more files: raise its limit (ulimit -n)"),
            std::string::npos)
      << ended.err;
}

/// A coordinator of several nodes has a connection to each; its ranks keep the limit of their user.
TEST(Limits, CoordinatorRaisesItsLimitOfOpenFilesAndNotThatOfItsRanks) {
  LauncherProcess job(
      {"run", "--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-conf",
       "last_call_timeout=0", "sh", "-c", "ulimit -Sn; grep -i '^max open files' /proc/$PPID/limits"},
      {{"LOCKSTEP_JOB_TOKEN", "0123456789abcdef"}}, [] {
        rlimit limit{};
        getrlimit(RLIMIT_NOFILE, &limit);
        const rlimit low{300, limit.rlim_max};
        setrlimit(RLIMIT_NOFILE, &low);
      });
  const Finished ended = job.wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  std::istringstream words(ended.out);
  std::string rank, max, open, files, soft, hard;
  words >> rank >> max >> open >> files >> soft >> hard;
  EXPECT_EQ(rank, "300") << ended.out;
  EXPECT_EQ(soft, hard) << ended.out;
  EXPECT_NE(soft, "300") << "the hard limit here is too low to tell";
}

}  // namespace
}  // namespace lockstep::launch
