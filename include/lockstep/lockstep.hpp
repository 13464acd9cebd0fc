#pragma once

/// All of Lockstep but the ready-made models (lockstep/models/), whose headers show torch::nn. Cheap to
/// include: none of these headers shows more of LibTorch than tensors and optimizers.

#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/atomic_folder.hpp"
#include "lockstep/core/cluster_environment.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/heartbeat.hpp"
#include "lockstep/core/hostlist.hpp"
#include "lockstep/core/memory.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/core/program.hpp"
#include "lockstep/core/progress_bar.hpp"
#include "lockstep/core/stop_signals.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/core/world.hpp"

#include "lockstep/comm/cuda.hpp"
#include "lockstep/comm/diagnostics.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/comm/store.hpp"
#include "lockstep/comm/trace.hpp"

#include "lockstep/data/batch.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/idx.hpp"
#include "lockstep/data/sampler.hpp"
#include "lockstep/data/tokenizer.hpp"
#include "lockstep/data/torch_dataset.hpp"

#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/local_sgd.hpp"
#include "lockstep/parallel/power_sgd.hpp"
#include "lockstep/parallel/sync_batch_norm.hpp"

#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/grad_scaler.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/parameter_groups.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/optim/step_in_backward.hpp"
#include "lockstep/optim/zero_grad.hpp"

#include "lockstep/checkpoint/checkpoint_folder.hpp"
#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/checkpoint/safetensors.hpp"

#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/checkpoints.hpp"
#include "lockstep/train/executable_batch_size.hpp"
#include "lockstep/train/local_sgd.hpp"
#include "lockstep/train/logger.hpp"
