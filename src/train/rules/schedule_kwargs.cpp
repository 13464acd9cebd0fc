#include "train/rules/schedule_kwargs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

constexpr const char* kName = "lr_scheduler_kwargs";
constexpr const char* kPlateau = "reduce_lr_on_plateau";

using Keys = std::vector<std::string>;

struct KnownSchedule {
  std::string type;
  /// Whether the rate falls towards the last step of the training, which must be known then.
  bool has_last_step;
  /// The keys that transformers' function takes besides the steps; for reduce_lr_on_plateau, those of torch's
  /// class.
  Keys keys;
};

/// The schedules of the Trainer. The functions themselves are in optim/schedules.cpp.
const std::vector<KnownSchedule>& known_schedules() {
  static const std::vector<KnownSchedule> known = {
      {"linear", true, {}},
      {"cosine", true, {"num_cycles"}},
      {"cosine_with_restarts", true, {"num_cycles"}},
      {"cosine_with_min_lr", true, {"num_cycles", "min_lr", "min_lr_rate"}},
      {"cosine_warmup_with_min_lr", true, {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}},
      {"polynomial", true, {"lr_end", "power"}},
      {"constant", false, {}},
      {"constant_with_warmup", false, {}},
      {"warmup_stable_decay",
       true,
       {"num_decay_steps", "num_stable_steps", "min_lr_ratio", "warmup_type", "decay_type", "num_cycles"}},
      {"inverse_sqrt", false, {"timescale"}},
      {kPlateau,
       false,
       {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"}}};
  return known;
}

const KnownSchedule& find_schedule(const std::string& type) {
  const auto& known = known_schedules();
  const auto found = std::ranges::find(known, type, &KnownSchedule::type);
  if (found != known.end()) return *found;
  throw UsageError("training arguments: '" + type + "' is not an lr_scheduler_type");
}

void check_keys(const TrainingArguments& args) {
  const auto kwargs = nlohmann::json::parse(args.lr_scheduler_kwargs, nullptr, false);
  if (!kwargs.is_object()) {
    throw UsageError(
        fmt::format("training arguments: {} must be a JSON object as in {{\"num_cycles\": 2}}, not '{}'",
                    kName, args.lr_scheduler_kwargs));
  }
  const Keys& known = find_schedule(args.lr_scheduler_type).keys;
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

std::vector<std::string> schedule_types() {
  std::vector<std::string> types;
  for (const auto& schedule : known_schedules()) types.push_back(schedule.type);
  return types;
}

bool has_last_step(const TrainingArguments& args) {
  return find_schedule(args.lr_scheduler_type).has_last_step;
}

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
