#include "shm/kernels.hpp"
#include "shm/kernels_loops.hpp"

namespace lockstep::shm {

constinit const Kernels kAvx512Kernels = make_kernels("avx512");

}  // namespace lockstep::shm
