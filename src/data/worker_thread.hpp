#pragma once

namespace lockstep {

/// Sets the calling thread up as a loader's worker: named for debuggers, and LibTorch's kernels run on this
/// thread alone. Several workers that each start a pool of their own would fight the training step for the
/// cores. Other threads keep their setting.
void prepare_worker_thread();

}  // namespace lockstep
