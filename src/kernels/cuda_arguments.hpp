#pragma once

namespace lockstep::kernels {

// What kernels get as arguments beside numbers and pointers, in the declarations that are compiled with them.
#include "kernels/cuda/arguments.cu"

}  // namespace lockstep::kernels
