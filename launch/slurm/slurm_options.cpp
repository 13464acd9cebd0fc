#include "slurm/script.hpp"

namespace lockstep::launch {
namespace {

using Table = OptionTable<SlurmOptions>;

std::vector<std::string> template_names() {
  std::vector<std::string> names{""};
  for (const auto& each : slurm_templates()) names.push_back(each.name);
  return names;
}

/// A directive is read word by word: quotes and blanks would need rules of their own.
OptionSetting one_word() {
  return matching("one word without blanks, quotes and '#'", [](const std::string& text) {
    return !text.empty() && text.find_first_of(" \t\r\n\"'\\#`$") == std::string::npos;
  });
}

void add_size_options(Table& table) {
  table.section("size")
      .add("nodes", &SlurmOptions::nodes, "Number of nodes.", at_least(1))
      .add("nproc-per-node", &SlurmOptions::nproc_per_node, "Ranks on each node.", at_least(1))
      .add("ntasks", &SlurmOptions::ntasks,
           "Slurm's number of tasks. It follows from the others; when given, it is compared with them.",
           at_least(1))
      .add("cpus-per-rank", &SlurmOptions::cpus_per_rank, "CPUs of each rank.", at_least(1))
      .add("gpus-per-node", &SlurmOptions::gpus_per_node, "GPUs of each node, one for each rank.",
           at_least(0))
      .add("mem", &SlurmOptions::mem, "Memory of each node, as in 64G.", one_word())
      .add("min-nodes", &SlurmOptions::min_nodes,
           "Template elastic: the fewest nodes with which the job goes on.", at_least(1))
      .add("max-restarts", &SlurmOptions::max_restarts,
           "Template elastic: how often the ranks are started anew.", at_least(0));
}

void add_job_options(Table& table) {
  table.section("job")
      .add("time", &SlurmOptions::time, "Time limit, as in 30 (minutes), 4:00:00 or 1-12.", one_word())
      .add("partition", &SlurmOptions::partition, "Partition.", one_word())
      .add("account", &SlurmOptions::account, "Account.", one_word())
      .add("qos", &SlurmOptions::qos, "Quality of service.", one_word())
      .add("job-name", &SlurmOptions::job_name, "Name of the job.", one_word())
      .add("output", &SlurmOptions::output, "File for the job's output, as in logs/%x-%j.out.", one_word())
      .add("array", &SlurmOptions::array,
           "Runs the program once for each number, as in 0-9%2; ARRAY_TASK in its arguments becomes the "
           "number.",
           one_word())
      .add("signal-before", &SlurmOptions::signal_before,
           "Seconds before the time limit at which the program gets SIGUSR1, and the job is queued again.",
           metavar("SECONDS"), between(1, 65535))
      .add("sbatch", &SlurmOptions::sbatch,
           "Further options of sbatch without their dashes, as in exclusive,constraint=a100.", one_word());
}

Table make_table() {
  Table table(
      "lockstep slurm script|submit",
      "Prints a batch script for Slurm, or submits it and prints the number of the job. The script is a "
      "template, made to fit the options.");
  table.rest(
      "program ...", &SlurmOptions::program,
      "The program and its arguments, after '--' or as the first word that is no flag. Without it, a small "
      "training program.");
  table.grammar({.stop_at_first_positional = true, .unique_prefixes = false, .environment_prefix = ""});
  table.section("script").add(
      "template", &SlurmOptions::template_name,
      "The template. By default array or requeue where --array or --signal-before is given, "
      "many-nodes-by-launcher for several nodes, else one-node.",
      one_of(template_names()));
  add_size_options(table);
  add_job_options(table);
  return table;
}

}  // namespace

const OptionTable<SlurmOptions>& slurm_option_table() {
  static const Table table = make_table();
  return table;
}

}  // namespace lockstep::launch
