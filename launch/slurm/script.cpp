#include "slurm/script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

using Table = OptionTable<SlurmOptions>;

std::vector<std::string> template_names() {
  std::vector<std::string> names{""};
  for (const auto& each : slurm_templates()) names.push_back(each.name);
  return names;
}

/// Directives are split at spaces; quotes and spaces would need special treatment.
OptionSetting one_word() {
  return matching("one word without spaces, quotes and '#'", [](const std::string& text) {
    return !text.empty() && text.find_first_of(" \t\r\n\"'\\#`$") == std::string::npos;
  });
}

void add_size_options(Table& table) {
  table.section("size")
      .add("nodes", &SlurmOptions::nodes, "Number of nodes.", at_least(1))
      .add("nproc-per-node", &SlurmOptions::nproc_per_node, "Ranks per node.", at_least(1))
      .add("ntasks", &SlurmOptions::ntasks,
           "Slurm's number of tasks. It follows from the others; if given, it must agree with them.",
           at_least(1))
      .add("cpus-per-rank", &SlurmOptions::cpus_per_rank, "CPUs per rank.", at_least(1))
      .add("gpus-per-node", &SlurmOptions::gpus_per_node, "GPUs per node, one for each rank.", at_least(0))
      .add("mem", &SlurmOptions::mem, "Memory per node, such as 64G.", one_word())
      .add("min-nodes", &SlurmOptions::min_nodes,
           "Template elastic: the smallest number of nodes with which the job continues.", at_least(1))
      .add("max-restarts", &SlurmOptions::max_restarts,
           "Template elastic: how often the ranks are restarted.", at_least(0));
}

void add_job_options(Table& table) {
  table.section("job")
      .add("time", &SlurmOptions::time, "Time limit, such as 30 (minutes), 4:00:00 or 1-12.", one_word())
      .add("partition", &SlurmOptions::partition, "Partition.", one_word())
      .add("account", &SlurmOptions::account, "Account.", one_word())
      .add("qos", &SlurmOptions::qos, "Quality of service.", one_word())
      .add("job-name", &SlurmOptions::job_name, "Name of the job.", one_word())
      .add("output", &SlurmOptions::output, "File for the job's output, such as logs/%x-%j.out.", one_word())
      .add("array", &SlurmOptions::array,
           "Run the program once for each number, such as 0-9%2; ARRAY_TASK in its arguments is replaced by "
           "the number.",
           one_word())
      .add("signal-before", &SlurmOptions::signal_before,
           "Seconds before the time limit at which the program gets SIGUSR1, and the job is requeued.",
           metavar("SECONDS"), between(1, 65535))
      .add("sbatch", &SlurmOptions::sbatch,
           "Further options of sbatch without their dashes, such as exclusive,mail-type=END,FAIL. May be "
           "given several times.",
           one_word(), accumulate());
}

Table make_table() {
  Table table("lockstep slurm script|submit",
              "Prints a batch script for Slurm, or submits it and prints the job id. The script "
              "is a template, made to fit the options.");
  table.rest("program ...", &SlurmOptions::program,
             "The program and its arguments, after '--' or from the first word that is not a flag. "
             "Default: a small training program.");
  table.grammar({.stop_at_first_positional = true, .unique_prefixes = false, .environment_prefix = ""});
  table.section("script").add("template", &SlurmOptions::template_name,
                              "The template. Default: array or requeue if --array or --signal-before is "
                              "given, many-nodes-by-launcher for several nodes, otherwise one-node.",
                              one_of(template_names()));
  add_size_options(table);
  add_job_options(table);
  return table;
}

using ParsedSlurm = OptionTable<SlurmOptions>::Parsed;

constexpr char kDirective[] = "#SBATCH --";

/// A template whose directives and settings can be changed.
struct Script {
  std::string text;

  /// The start of the line with this beginning, or npos.
  std::size_t line(const std::string& beginning) const {
    if (text.starts_with(beginning)) return 0;
    const auto found = text.find("\n" + beginning);
    return found == std::string::npos ? found : found + 1;
  }

  bool has_setting(const std::string& name) const { return line(name + "=") != std::string::npos; }

  template <class Value>
  void set(const std::string& name, const Value& value) {
    const auto start = line(name + "=");
    if (start == std::string::npos) throw formatted<Error>("the template has no line '{}='.", name);
    replace_line(start, fmt::format("{}={}", name, value));
  }

  /// Changes a directive, or adds it after the last one.
  template <class Value>
  void direct(const std::string& name, const Value& value) {
    const std::string written = fmt::format("{}", value);
    const std::string whole = fmt::format("{}{}{}{}", kDirective, name, written.empty() ? "" : "=", written);
    const auto start = line(fmt::format("{}{}=", kDirective, name));
    if (start != std::string::npos) return replace_line(start, whole);
    const auto last = text.rfind(kDirective);
    text.insert(text.find('\n', last) + 1, whole + "\n");
  }

  void replace_line(std::size_t start, const std::string& with) {
    text.replace(start, text.find('\n', start) - start, with);
  }
};

std::string template_name(const ParsedSlurm& parsed) {
  const SlurmOptions& options = parsed.options;
  if (!options.template_name.empty()) return options.template_name;
  if (options.array && options.signal_before) {
    throw formatted<UsageError>(
        "--array and --signal-before ask for different templates: choose with --template requeue and add the "
        "numbers with --sbatch array={}.",
        *options.array);
  }
  if (options.array) return "array";
  if (options.signal_before) return "requeue";
  return options.nodes > 1 ? "many-nodes-by-launcher" : "one-node";
}

[[noreturn]] void refuse_for(const std::string& name, const std::string& flag, const std::string& why) {
  throw formatted<UsageError>("--{} and --template {} contradict each other: {}", flag, name, why);
}

void check_template(const ParsedSlurm& parsed, const std::string& name) {
  const SlurmOptions& options = parsed.options;
  if (name == "one-node" && options.nodes > 1)
    refuse_for(name, "nodes", "it is for one node. Use many-nodes-by-launcher or many-nodes-by-srun.");
  if (name != "array" && options.array)
    refuse_for(name, "array", fmt::format("leave --template out, or use --sbatch array={}.", *options.array));
  if (name != "requeue" && options.signal_before) {
    refuse_for(name, "signal-before",
               "its script does not catch SIGUSR1, which would end it. Use requeue, or leave it out.");
  }
  for (const auto* flag : {"min-nodes", "max-restarts"}) {
    if (name != "elastic" && parsed.was_given(flag))
      refuse_for(name, flag, "only elastic has such a setting.");
  }
  if (options.min_nodes > options.nodes) {
    throw formatted<UsageError>("--min-nodes {}: expected at most --nodes {}.", options.min_nodes,
                                options.nodes);
  }
}

void check_tasks(const SlurmOptions& options, bool by_launcher, const std::string& name) {
  const int expected = by_launcher ? options.nodes : options.nodes * options.nproc_per_node;
  if (!options.ntasks || *options.ntasks == expected) return;
  const char* tasks =
      by_launcher ? "one task on each node, the launcher, which starts the ranks" : "one task for each rank";
  const std::string ranks =
      by_launcher ? "" : fmt::format(" and --nproc-per-node {}", options.nproc_per_node);
  throw formatted<UsageError>(
      "--ntasks {}: the template {} starts {}: --nodes {}{} make {}. Leave --ntasks out, or change the "
      "others.",
      *options.ntasks, name, tasks, options.nodes, ranks, expected);
}

void check_devices(const SlurmOptions& options) {
  if (options.gpus_per_node == 0 || options.nproc_per_node <= options.gpus_per_node) return;
  throw formatted<UsageError>(
      "--nproc-per-node {} and --gpus-per-node {} contradict each other: each rank needs a GPU of its own. "
      "Ask for as many GPUs as ranks.",
      options.nproc_per_node, options.gpus_per_node);
}

void set_size(const SlurmOptions& options, bool by_launcher, Script& script) {
  const int tasks = by_launcher ? 1 : options.nproc_per_node;
  const int cpus = by_launcher ? options.cpus_per_rank * options.nproc_per_node : options.cpus_per_rank;
  script.direct("nodes", options.nodes);
  script.direct("ntasks-per-node", tasks);
  script.direct("cpus-per-task", cpus);
  if (options.gpus_per_node > 0) script.direct("gpus-per-node", options.gpus_per_node);
}

/// Whether an item of --sbatch begins an option; otherwise it belongs to the value of the one before it.
bool begins_option(const std::string& item) {
  static const std::set<std::string> kWithoutValue{"consolidate-segments",
                                                   "contiguous",
                                                   "exclusive",
                                                   "get-user-env",
                                                   "hold",
                                                   "ignore-pbs",
                                                   "kill-on-invalid-dep",
                                                   "nice",
                                                   "no-kill",
                                                   "no-requeue",
                                                   "overcommit",
                                                   "oversubscribe",
                                                   "parsable",
                                                   "propagate",
                                                   "quiet",
                                                   "reboot",
                                                   "requeue",
                                                   "spread-job",
                                                   "spread-segments",
                                                   "stepmgr",
                                                   "test-only",
                                                   "use-min-nodes",
                                                   "verbose",
                                                   "wait"};
  const auto is_of_name = [](unsigned char letter) { return std::islower(letter) != 0 || letter == '-'; };
  const auto equals = std::min(item.find('='), item.size());
  const std::string name = item.substr(0, equals);
  if (equals == item.size()) return kWithoutValue.contains(name);
  return !name.empty() && std::ranges::all_of(name, is_of_name);
}

std::vector<std::string> sbatch_options(const std::vector<std::string>& items) {
  std::vector<std::string> result;
  for (const auto& item : items) {
    const bool goes_on =
        !result.empty() && result.back().find('=') != std::string::npos && !begins_option(item);
    if (goes_on) {
      result.back() += "," + item;
    } else {
      result.push_back(item);
    }
  }
  return result;
}

void set_job(const SlurmOptions& options, Script& script) {
  const std::pair<const char*, const std::optional<std::string>*> directives[] = {
      {"time", &options.time},       {"partition", &options.partition},
      {"account", &options.account}, {"qos", &options.qos},
      {"mem", &options.mem},         {"job-name", &options.job_name},
      {"output", &options.output},   {"array", &options.array}};
  for (const auto& [name, value] : directives) {
    if (*value) script.direct(name, **value);
  }
  for (const auto& option : sbatch_options(options.sbatch)) {
    const auto equals = std::min(option.find('='), option.size());
    script.direct(option.substr(0, equals), option.substr(std::min(equals + 1, option.size())));
  }
}

void set_settings(const SlurmOptions& options, const std::string& launcher, Script& script) {
  if (script.has_setting("lockstep")) script.set("lockstep", quote_for_shell(launcher));
  const std::pair<const char*, int> settings[] = {{"nproc_per_node", options.nproc_per_node},
                                                  {"fewest_nodes", options.min_nodes},
                                                  {"max_restarts", options.max_restarts}};
  for (const auto& [name, value] : settings) {
    if (script.has_setting(name)) script.set(name, value);
  }
  if (options.signal_before) {
    script.direct("signal", fmt::format("B:USR1@{}", *options.signal_before));
    script.set("save_seconds", (*options.signal_before + 1) / 2);
  }
  if (options.program.empty()) return;
  std::vector<std::string> words;
  for (const auto& word : options.program) words.push_back(quote_for_shell(word));
  script.set("program", fmt::format("({})", fmt::join(words, " ")));
}

}  // namespace

const OptionTable<SlurmOptions>& slurm_option_table() {
  static const Table table = make_table();
  return table;
}

std::string slurm_script(const ParsedSlurm& parsed, const std::string& launcher) {
  const std::string name = template_name(parsed);
  Script script{std::ranges::find(slurm_templates(), name, &SlurmTemplate::name)->text};
  const bool by_launcher = script.has_setting("nproc_per_node");
  check_template(parsed, name);
  check_tasks(parsed.options, by_launcher, name);
  check_devices(parsed.options);
  set_size(parsed.options, by_launcher, script);
  set_job(parsed.options, script);
  set_settings(parsed.options, launcher, script);
  return script.text;
}

}  // namespace lockstep::launch
