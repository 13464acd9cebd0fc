#include "shm/kernels.hpp"
#include "shm/kernels_loops.hpp"

namespace lockstep::shm {

constinit const Kernels kAvx2Kernels = make_kernels("avx2");

}  // namespace lockstep::shm
