#include "train/trainer/trainer_impl.hpp"

#include <ATen/Context.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <cmath>
#include <set>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "lockstep/train/callbacks.hpp"
#include "train/trainer/callback_watch.hpp"

namespace lockstep {
namespace {

LogLevel level_from(const std::string& name) {
  if (name == "debug") return LogLevel::debug;
  if (name == "warning") return LogLevel::warning;
  return name == "error" ? LogLevel::error : LogLevel::info;
}

/// Whether this rank writes the messages of its node or of the job.
bool speaks(const Accelerator& accelerator, const TrainingArguments& args) {
  return args.log_on_each_node ? accelerator.is_local_main_process() : accelerator.is_main_process();
}

void allow_tf32(bool on) {
  at::globalContext().setAllowTF32CuBLAS(on);
  at::globalContext().setAllowTF32CuDNN(on);
}

/// Number of elements of the parameters, each counted once under its first name. Embeddings are left out,
/// because they only look up.
std::int64_t numbers_that_multiply(ModelAdapter& model) {
  std::set<std::string> looked_up;
  for (const auto& name : model.embeddings()) looked_up.insert(name + ".weight");
  std::set<const void*> seen;
  std::int64_t count = 0;
  for (const auto& entry : model.parameters()) {
    const bool is_new = seen.insert(entry.tensor.unsafeGetTensorImpl()).second;
    if (is_new && !looked_up.contains(entry.name))
      count += c10::multiply_integers(parallel::initial_sizes(entry.tensor));
  }
  return count;
}

using Event = void (TrainerCallback::*)(CallbackContext&);

/// Of the events between two steps.
const char* name_of(Event event) {
  if (event == &TrainerCallback::on_step_end) return "on_step_end";
  if (event == &TrainerCallback::on_log) return "on_log";
  if (event == &TrainerCallback::on_evaluate) return "on_evaluate";
  if (event == &TrainerCallback::on_prediction_step) return "on_prediction_step";
  if (event == &TrainerCallback::on_save) return "on_save";
  if (event == &TrainerCallback::on_epoch_end) return "on_epoch_end";
  return "on_epoch_begin";
}

}  // namespace

double rounded(double value, int decimals) {
  const double scale = std::pow(10.0, decimals);
  return std::round(value * scale) / scale;
}

void add_speed(LogValues& values, const std::string& prefix, double seconds, double samples, double steps) {
  values.emplace_back(prefix + "_runtime", rounded(seconds, 4));
  if (seconds <= 0) return;
  values.emplace_back(prefix + "_samples_per_second", rounded(samples / seconds, 3));
  values.emplace_back(prefix + "_steps_per_second", rounded(steps / seconds, 3));
}

Trainer::Impl::Impl(const Accelerator& the_accelerator, TrainingArguments the_args,
                    TrainerComponents the_parts)
    : accelerator(the_accelerator),
      args(std::move(the_args)),
      parts(std::move(the_parts)),
      logger(accelerator, "trainer",
             {.level = level_from(speaks(accelerator, args) ? args.log_level : args.log_level_replica)}),
      scope(accelerator) {
  if (!parts.model) throw UsageError("Trainer: there is no model: set TrainerComponents::model");
  if (args.tf32) allow_tf32(*args.tf32);
  if (args.fused_kernels == "off") set_fused_kernels(FusedKernels::off);
  set_label_smoothing();
  if (args.gradient_checkpointing) parts.model->set_activation_checkpointing();
  if (!args.fsdp.empty() && !accelerator.options().fsdp_plugin) {
    throw UsageError(
        "Trainer: fsdp is '" + args.fsdp +
        "', but the Accelerator has no fsdp_plugin: make it with accelerator_options(args), or give none");
  }
  accelerator.set_seed(args.seed, /*device_specific=*/true, args.full_determinism);
  callbacks.push_back(std::make_shared<DefaultFlowCallback>());
  callbacks.push_back(std::make_shared<TrackerCallback>());
  callbacks.insert(callbacks.end(), parts.callbacks.begin(), parts.callbacks.end());
  if (args.disable_tqdm) {
    callbacks.push_back(std::make_shared<PrinterCallback>());
  } else {
    callbacks.push_back(std::make_shared<ProgressCallback>());
  }
  state.is_world_process_zero = accelerator.is_main_process();
  state.is_local_process_zero = accelerator.is_local_main_process();
}

/// Called before the parameters are sharded; counts them once.
void Trainer::Impl::count_parameters() {
  if (!multiplied) multiplied = numbers_that_multiply(*parts.model);
}

std::map<std::string, std::vector<TrainerCallback*>> Trainer::Impl::stateful_callbacks() const {
  std::map<std::string, std::vector<TrainerCallback*>> result;
  for (const auto& callback : callbacks) {
    if (!callback->name().empty()) result[callback->name()].push_back(callback.get());
  }
  return result;
}

void Trainer::Impl::call(Trainer& trainer, Event event, const LogValues& values) {
  CallbackContext context{args, state, control, trainer, values};
  delivered.deliver(control, [&](bool heard_once) {
    std::optional<train::CallbackWatch> watch;
    if (heard_once && refuse_recoveries) watch.emplace(accelerator.process_group(), *optimizer);
    for (const auto& callback : callbacks) {
      ((*callback).*event)(context);
      const std::string found = watch ? watch->what_was_done() : "";
      if (found.empty()) continue;
      watch.reset();
      std::exchange(refuse_recoveries, nullptr)(
          fmt::format("the callback {} has {} in {}, of which a process that replaces a lost one would hear "
                      "alone: do it in on_step_begin (docs/reliability.md)",
                      train::class_of(*callback), found, name_of(event)));
    }
  });
}

}  // namespace lockstep
