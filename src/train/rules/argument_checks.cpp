#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "fsdp_config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/training_arguments.hpp"
#include "metric_names.hpp"
#include "schedule_kwargs.hpp"

namespace lockstep {
namespace {

using Args = TrainingArguments;

void demand(bool holds, const std::string& text) {
  if (!holds) throw UsageError("training arguments: " + text);
}

void check_length(const Args& args) {
  demand(args.max_steps != 0, "max_steps is 0: leave it at -1 to train for num_train_epochs");
  demand(!args.max_duration || args.max_steps < 0,
         "max_duration and max_steps both say how long to train: give one of them");
  demand(!args.max_duration ||
             (args.max_duration->unit() != Duration::Unit::share && !args.max_duration->is_zero()),
         "max_duration must be steps, epochs, samples or seconds, and more than 0; a share (dur) has no "
         "total to refer to");
  demand(args.global_batch_size == 0 || args.gradient_accumulation_steps == 1,
         "global_batch_size determines gradient_accumulation_steps: give one of them");
}

void check_precision(const Args& args) {
  demand(!(args.bf16 && args.fp16), "bf16 and fp16 exclude each other: choose one");
  demand(!(args.bf16_full_eval && args.fp16_full_eval),
         "bf16_full_eval and fp16_full_eval exclude each other: choose one");
}

void check_fsdp(const Args& args) {
  if (!fsdp_plugin(args)) return;
  demand(!args.bf16_full_eval && !args.fp16_full_eval,
         "bf16_full_eval and fp16_full_eval change weights in place, which fsdp has sharded: leave them off");
  demand(args.average_tokens_across_devices,
         "fsdp keeps no gradients of a single rank: leave average_tokens_across_devices on");
}

void check_schedule(const Args& args) {
  check_schedule_kwargs(args);
  demand(!args.warmup_steps.is_time(), "warmup_steps cannot be a time: a schedule counts steps");
  const auto& type = args.lr_scheduler_type;
  const bool has_end = !type.starts_with("constant") && type != "inverse_sqrt" && !type.starts_with("reduce");
  demand(
      !args.max_duration || !args.max_duration->is_time() || !has_end,
      "a training that ends by the clock has no last step for a learning rate that falls towards it: choose "
      "lr_scheduler_type constant, constant_with_warmup or inverse_sqrt");
  const bool plateau = args.lr_scheduler_type == "reduce_lr_on_plateau";
  demand(!plateau || args.eval_strategy != IntervalStrategy::no,
         "lr_scheduler_type reduce_lr_on_plateau needs evaluations: set eval_strategy to steps or epoch");
}

void check_intervals(const Args& args) {
  demand(
      !args.logging_steps.is_time() && !args.save_steps.is_time() &&
          !(args.eval_steps && args.eval_steps->is_time()) && !args.eval_delay.is_time(),
      "logging_steps, eval_steps, save_steps and eval_delay cannot be times: ranks must agree on the step");
  demand(args.eval_strategy != IntervalStrategy::no || !args.eval_on_start,
         "eval_on_start needs evaluations: set eval_strategy to steps or epoch");
}

/// Whether every checkpoint coincides with an evaluation.
bool is_multiple(const Duration& whole, const Duration& part) {
  if (whole.unit() != part.unit()) return whole == part;
  const double times = whole.value() / part.value();
  return std::abs(times - std::round(times)) < 1e-9 && times >= 1;
}

void check_best(const Args& args) {
  demand(args.save_strategy != SaveStrategy::best || args.eval_strategy != IntervalStrategy::no,
         "save_strategy best needs evaluations: set eval_strategy to steps or epoch");
  if (!args.load_best_model_at_end) return;
  demand(args.eval_strategy != IntervalStrategy::no,
         "load_best_model_at_end needs evaluations: set eval_strategy to steps or epoch");
  demand(args.save_strategy != SaveStrategy::no,
         "load_best_model_at_end needs checkpoints: set save_strategy to " + option_word(args.eval_strategy) +
             " or best");
  if (args.save_strategy == SaveStrategy::best) return;
  demand(option_word(args.save_strategy) == option_word(args.eval_strategy),
         "load_best_model_at_end needs a checkpoint where the best evaluation was: eval_strategy is " +
             option_word(args.eval_strategy) + " but save_strategy is " + option_word(args.save_strategy));
  const Duration eval_steps = args.eval_steps.value_or(args.logging_steps);
  demand(args.eval_strategy != IntervalStrategy::steps || is_multiple(args.save_steps, eval_steps),
         "load_best_model_at_end needs save_steps to be a multiple of eval_steps: " + args.save_steps.text() +
             " is none of " + eval_steps.text());
}

void check_saving(const Args& args) {
  demand(!args.save_only_model || !args.async_save,
         "save_only_model writes at once: async_save is for whole checkpoints");
}

}  // namespace

void check_training_arguments(const TrainingArguments& args) {
  training_argument_table().check(args);
  check_length(args);
  check_precision(args);
  check_fsdp(args);
  check_schedule(args);
  check_intervals(args);
  check_best(args);
  check_saving(args);
}

std::optional<std::string> best_metric_name(const TrainingArguments& args) {
  const bool needed = args.load_best_model_at_end || args.save_strategy == SaveStrategy::best ||
                      args.lr_scheduler_type == "reduce_lr_on_plateau";
  if (!args.metric_for_best_model && !needed) return std::nullopt;
  return train::with_prefix("eval", args.metric_for_best_model.value_or("loss"));
}

bool greater_metric_is_better(const TrainingArguments& args) {
  return args.greater_is_better.value_or(!best_metric_name(args).value_or("loss").ends_with("loss"));
}

namespace {

constexpr const char* kName = "lr_scheduler_kwargs";
constexpr const char* kPlateau = "reduce_lr_on_plateau";

using Keys = std::vector<std::string>;

/// The keys that transformers' functions take besides the steps; for reduce_lr_on_plateau, those of torch's
/// class.
const Keys& keys_of(const std::string& schedule) {
  static const std::map<std::string, Keys> keys = {
      {"constant", {}},
      {"constant_with_warmup", {}},
      {"cosine", {"num_cycles"}},
      {"cosine_warmup_with_min_lr", {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}},
      {"cosine_with_min_lr", {"num_cycles", "min_lr", "min_lr_rate"}},
      {"cosine_with_restarts", {"num_cycles"}},
      {"inverse_sqrt", {"timescale"}},
      {"linear", {}},
      {"polynomial", {"lr_end", "power"}},
      {"warmup_stable_decay",
       {"num_decay_steps", "num_stable_steps", "min_lr_ratio", "warmup_type", "decay_type", "num_cycles"}},
      {kPlateau, {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"}}};
  return keys.at(schedule);
}

void check_keys(const TrainingArguments& args) {
  const auto kwargs = nlohmann::json::parse(args.lr_scheduler_kwargs, nullptr, false);
  if (!kwargs.is_object()) {
    throw UsageError(
        fmt::format("training arguments: {} must be a JSON object as in {{\"num_cycles\": 2}}, not '{}'",
                    kName, args.lr_scheduler_kwargs));
  }
  const Keys& known = keys_of(args.lr_scheduler_type);
  for (const auto& [key, value] : kwargs.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw UsageError(fmt::format("training arguments: {} has '{}', but the schedule {} takes {}", kName, key,
                                 args.lr_scheduler_type,
                                 known.empty() ? "nothing" : fmt::format("{}", fmt::join(known, ", "))));
  }
}

const OptionTable<optim::ScheduleOptions>& schedule_table() {
  using S = optim::ScheduleOptions;
  static const auto table = OptionTable<S>(kName, "Numbers of a schedule.")
                                .add("num-cycles", &S::num_cycles, "Waves.")
                                .add("min-lr", &S::min_lr, "Lowest rate.")
                                .add("min-lr-rate", &S::min_lr_rate, "Lowest share.")
                                .add("warmup-lr-rate", &S::warmup_lr_rate, "First share.")
                                .add("lr-end", &S::lr_end, "Last rate.")
                                .add("power", &S::power, "Power.")
                                .add("timescale", &S::timescale, "Steps.")
                                .add("num-decay-steps", &S::num_decay_steps, "Steps of decay.")
                                .add("num-stable-steps", &S::num_stable_steps, "Steps of full rate.")
                                .add("min-lr-ratio", &S::min_lr_ratio, "Lowest share.")
                                .add("warmup-type", &S::warmup_type, "Shape of the growth.")
                                .add("decay-type", &S::decay_type, "Shape of the decay.");
  return table;
}

const OptionTable<optim::PlateauOptions>& plateau_table() {
  using P = optim::PlateauOptions;
  static const auto table = OptionTable<P>(kName, "Numbers of reduce_lr_on_plateau.")
                                .add("mode", &P::mode, "min or max.")
                                .add("factor", &P::factor, "Factor.")
                                .add("patience", &P::patience, "Evaluations.")
                                .add("threshold", &P::threshold, "Least gain.")
                                .add("threshold-mode", &P::threshold_mode, "rel or abs.")
                                .add("cooldown", &P::cooldown, "Evaluations.")
                                .add("min-lr", &P::min_lr, "Lowest rate.")
                                .add("eps", &P::eps, "Least change.");
  return table;
}

}  // namespace

optim::ScheduleOptions schedule_options(const TrainingArguments& args) {
  check_keys(args);
  optim::ScheduleOptions base;
  base.name = args.lr_scheduler_type;
  return schedule_table().from_json_text(args.lr_scheduler_kwargs, base);
}

optim::PlateauOptions plateau_options(const TrainingArguments& args) {
  check_keys(args);
  optim::PlateauOptions base;
  base.mode = greater_metric_is_better(args) ? "max" : "min";
  return plateau_table().from_json_text(args.lr_scheduler_kwargs, base);
}

void check_schedule_kwargs(const TrainingArguments& args) {
  if (args.lr_scheduler_type == kPlateau) {
    optim::PlateauRule{plateau_options(args)};
    return;
  }
  // The length of training is not known before the data are read; this many steps suit all values.
  auto options = schedule_options(args);
  options.num_training_steps = std::int64_t{1} << 40;
  optim::make_schedule(options, args.learning_rate);
}

}  // namespace lockstep
