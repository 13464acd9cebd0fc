// As all_reduce.cpp, for the shared-memory collectives alone, without LibTorch's dispatch: "core_staged" and
// "core_direct". The ranks are processes that this program starts: all_reduce_core RANKS

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "pin.hpp"
#include "shm/groups.hpp"
#include "support/folder_bootstrap_store.hpp"

namespace {

using namespace lockstep::shm;
using Clock = lockstep::net::Clock;

int repeats(std::size_t bytes) { return bytes >= (16U << 20) ? 9 : bytes >= (1U << 20) ? 40 : 300; }

double time_all_reduce(Group& group, float* data, std::size_t count) {
  std::vector<double> times;
  for (int i = 0; i < repeats(count * sizeof(float)) + 3; ++i) {
    std::fill_n(data, count, static_cast<float>(group.step_sync().rank() + 1));
    barrier(group.step_sync());
    barrier(group.step_sync());
    const auto begun = Clock::now();
    all_reduce(group.step_sync(), *group.heap(), data, {count, Dtype::f32}, Reduction::sum);
    if (i >= 3) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begun).count());
  }
  const int ranks = group.step_sync().size();
  const float right = static_cast<float>(ranks * (ranks + 1)) / 2;
  if (!std::all_of(data, data + count, [&](float value) { return value == right; })) {
    throw lockstep::Error("an all_reduce gave a wrong sum");
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void measure(int rank, int ranks, const std::filesystem::path& folder) {
  lockstep::benchmarks::pin(rank, ranks);
  lockstep::testing::FolderBootstrapStore store(folder);
  const auto joined = Group::join(lockstep::shm::testing::options_for(rank, ranks), store);
  if (!joined.group) throw lockstep::Error(joined.obstacle);
  Group& group = *joined.group;
  for (std::size_t bytes = 4U << 10; bytes <= (64U << 20); bytes *= 4) {
    std::vector<float> own(bytes / sizeof(float));
    auto* shared = static_cast<float*>(group.heap()->allocate(bytes));
    const double staged = time_all_reduce(group, own.data(), own.size());
    const double direct = time_all_reduce(group, shared, own.size());
    group.heap()->free(shared);
    if (rank == 0)
      std::cout << "core_staged " << bytes << ' ' << staged << "\ncore_direct " << bytes << ' ' << direct
                << std::endl;
  }
  barrier(group.step_sync());
}

}  // namespace

int main(int count, char** words) {
  const int ranks = count == 2 ? std::atoi(words[1]) : 2;
  const lockstep::testing::TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(600);
      measure(rank, ranks, folder.path());
      _exit(0);
    }
    children.push_back(child);
  }
  measure(0, ranks, folder.path());
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  return 0;
}
