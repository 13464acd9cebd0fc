#include <ATen/Context.h>

#include <utility>

#include "lockstep/comm/cuda.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/callbacks.hpp"
#include "lockstep/train/trainer.hpp"
#include "train/trainer/peak_memory.hpp"

namespace lockstep {
namespace {

double peak_of(const Accelerator& accelerator) {
  if (!accelerator.device().is_cuda()) return 0;
  return peak_flops(cuda_device_name(accelerator.device().index()), accelerator.mixed_precision(),
                    at::globalContext().allowTF32CuBLAS());
}

}  // namespace

void ThroughputCallback::on_train_begin(CallbackContext& event) {
  if (options_.peak_flops_per_device == 0)
    options_.peak_flops_per_device = peak_of(event.trainer.accelerator());
  since_ = std::chrono::steady_clock::now();
  step_ = event.state.global_step;
  samples_ = event.state.num_samples_seen;
  flops_ = event.state.total_flos;
}

void ThroughputCallback::on_log(CallbackContext& event) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - since_).count();
  const auto steps = static_cast<double>(event.state.global_step - step_);
  if (steps <= 0 || seconds <= 0) return;
  const double samples = static_cast<double>(event.state.num_samples_seen - samples_) / seconds;
  LogValues values{{"throughput/samples_per_second", samples},
                   {"throughput/steps_per_second", steps / seconds}};
  if (options_.tokens_per_sample > 0)
    values.emplace_back("throughput/tokens_per_second", samples * options_.tokens_per_sample);
  if (options_.peak_flops_per_device > 0) {
    const double done = (event.state.total_flos - flops_) / event.trainer.accelerator().num_processes();
    values.emplace_back("throughput/mfu", done / seconds / options_.peak_flops_per_device);
  }
  event.trainer.accelerator().log(values, event.state.global_step);
  on_train_begin(event);
}

void MemoryCallback::on_log(CallbackContext& event) {
  if (std::exchange(last_step_, event.state.global_step) == event.state.global_step) return;
  const auto& accelerator = event.trainer.accelerator();
  LogValues values{{"memory/peak_rss_mib", train::peak_resident_mib()}};
  if (const auto allocated = train::peak_allocated_mib(accelerator.device()))
    values.emplace_back("memory/peak_allocated_mib", *allocated);
  accelerator.log(values, event.state.global_step);
}

void LearningRateMonitor::on_log(CallbackContext& event) {
  const auto* const optimizer = event.trainer.optimizer();
  if (optimizer == nullptr) return;
  // Evaluations and totals of a run are logged at steps that were logged already.
  if (std::exchange(last_step_, event.state.global_step) == event.state.global_step) return;
  LogValues values;
  for (const auto& group : optimizer->param_groups())
    values.emplace_back("lr/group_" + std::to_string(values.size()), group.options().get_lr());
  event.trainer.accelerator().log(values, event.state.global_step);
}

}  // namespace lockstep
