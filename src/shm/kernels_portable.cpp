#include "shm/kernels.hpp"
#include "shm/kernels_loops.hpp"

namespace lockstep::shm {

constinit const Kernels kPortableKernels = make_kernels("portable");

}  // namespace lockstep::shm
