#include "worker_thread.hpp"

#include <ATen/Parallel.h>
#include <pthread.h>

#include "core/runtime/crash_handler.hpp"

// The OpenMP runtime that LibTorch brings with it; absent where LibTorch was built without OpenMP.
extern "C" void omp_set_num_threads(int threads) __attribute__((weak));

namespace lockstep {

void prepare_worker_thread() {
  use_crash_stack();
  pthread_setname_np(pthread_self(), "lockstep-data");
  // LibTorch sets a thread's number of threads at its first parallel call. Making that call first keeps it
  // from undoing ours. at::set_num_threads would change the number for the whole process.
  at::internal::lazy_init_num_threads();
  at::get_num_threads();
  if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
}

}  // namespace lockstep
