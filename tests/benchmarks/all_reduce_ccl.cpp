// As all_reduce.cpp, for oneCCL on the CPU, over Intel MPI: "oneccl bytes median_us". Compiled and started by
// all_reduce.py where there is one.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <oneapi/ccl.hpp>
#include <vector>

// Hooks of a profiler's library, which oneCCL's static one wants: empty, as without the profiler.
extern "C" {
void* __itt_domain_create_ptr__3_0 = nullptr;
void* __itt_event_create_ptr__3_0 = nullptr;
void* __itt_event_end_ptr__3_0 = nullptr;
void* __itt_event_start_ptr__3_0 = nullptr;
void* __itt_metadata_add_ptr__3_0 = nullptr;
void* __itt_string_handle_create_ptr__3_0 = nullptr;
void* __itt_task_begin_ptr__3_0 = nullptr;
void* __itt_task_end_ptr__3_0 = nullptr;
void* __itt_thread_set_name_ptr__3_0 = nullptr;
}

namespace {

using Clock = std::chrono::steady_clock;

std::shared_ptr<ccl::kvs> meet(int rank) {
  ccl::kvs::address_type address;
  std::shared_ptr<ccl::kvs> store;
  if (rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  return rank == 0 ? store : ccl::create_kvs(address);
}

double median_time(ccl::communicator& group, std::vector<float>& data, int rank, int ranks) {
  const std::size_t bytes = data.size() * sizeof(float);
  const int repeats = bytes >= (16 << 20) ? 7 : bytes >= (1 << 20) ? 30 : 150;
  std::vector<double> times;
  for (int i = 0; i < repeats + 3; ++i) {
    std::fill(data.begin(), data.end(), static_cast<float>(rank + 1));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = Clock::now();
    ccl::allreduce(data.data(), data.data(), data.size(), ccl::reduction::sum, group).wait();
    if (i >= 3) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  if (data.back() != static_cast<float>(ranks * (ranks + 1) / 2)) MPI_Abort(MPI_COMM_WORLD, 1);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  ccl::init();
  {
    auto group = ccl::create_communicator(ranks, rank, meet(rank));
    for (std::size_t bytes = 4 << 10; bytes <= (64 << 20); bytes *= 4) {
      std::vector<float> data(bytes / sizeof(float));
      const double time = median_time(group, data, rank, ranks);
      if (rank == 0) std::printf("oneccl %zu %.2f\n", bytes, time);
    }
  }
  MPI_Finalize();
  return 0;
}
