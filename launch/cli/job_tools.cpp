// Commands that run a program of Lockstep, installed beside the launcher: as every rank of a job, or in place
// of the launcher.
#include "cli/job_tools.hpp"

#include <memory>
#include <utility>

#include "cli/run.hpp"
#include "config/launch_config.hpp"
#include "core/option_values.hpp"
#include "process/words.hpp"
#include "process/worker_process.hpp"
#include "tools/acceptance/acceptance_options.hpp"
#include "tools/bench/bench_options.hpp"

namespace lockstep::launch {
namespace {

/// The options of a run and of the program that its ranks run.
template <class ToolOptions>
struct ToolJob {
  RunOptions run;
  ToolOptions tool;
};

/// One table for both: the program's options under exactly their names, then those of `lockstep run` that the
/// program has not.
template <class ToolOptions>
class ToolJobTable : public OptionSet {
 public:
  using Job = ToolJob<ToolOptions>;

  explicit ToolJobTable(const OptionTable<ToolOptions>& table) : OptionSet("", "", std::make_shared<Job>()) {
    for (OptionSpec spec : table.specs()) {
      spec.by_prefix = false;
      spec.from_environment = false;
      include(std::move(spec), &Job::tool);
    }
    for (const OptionSpec& spec : run_option_table().specs()) include(spec, &Job::run);
    OptionSpec program;
    program.name = "program";
    program.type = static_cast<Words*>(nullptr);
    program.field = [](void* job) { return &static_cast<Job*>(job)->run.program; };
    arguments_.push_back(std::move(program));
    grammar_ = {.unique_prefixes = true, .environment_prefix = "PET_"};
  }

 private:
  template <class Part>
  void include(OptionSpec spec, Part Job::*part) {
    if (find(spec.name) != nullptr) return;
    if (spec.field) {
      spec.field = [inner = std::move(spec.field), part](void* job) {
        return inner(&(static_cast<Job*>(job)->*part));
      };
    }
    add(std::move(spec));
  }
};

/// The flags that set those of the options of a table that were given.
template <class ToolOptions>
Words given_flags(const OptionTable<ToolOptions>& table, ToolOptions options, const ParseReport& report) {
  Words flags;
  for (const auto& spec : table.specs()) {
    if (!report.was_given(spec.name)) continue;
    if (const auto value = value_text(spec.field(&options))) flags.push_back("--" + spec.name + "=" + *value);
  }
  return flags;
}

/// Runs `program`, whose options `table` has, as every rank of a job; `words` may also have options of
/// `lockstep run`. Errors in them, and a program that the user names, are refused before any rank starts. An
/// empty `program`: that of `lockstep run --check`.
template <class ToolOptions>
int run_tool(const OptionTable<ToolOptions>& table, const std::string& program, const Words& words,
             std::ostream& out, std::ostream& err) {
  ToolJob<ToolOptions> job;
  OptionTable<RunOptions>::Parsed parsed;
  static_cast<ParseReport&>(parsed) =
      ToolJobTable<ToolOptions>(table).parse(&job, words, process_environment());
  if (parsed.help) {
    out << table.help() << "\nAll other options are those of lockstep run, as in --nproc-per-node 4.\n";
    return 0;
  }
  if (!job.run.program.empty()) {
    throw formatted<UsageError>(
        "unexpected argument '{}': this command runs a program of its own. See --help.",
        job.run.program.front());
  }
  parsed.options = job.run;
  parsed.options.check = program.empty();
  if (!program.empty()) {
    parsed.options.program = given_flags(table, job.tool, parsed);
    parsed.options.program.insert(parsed.options.program.begin(), program_of_lockstep(program));
  }
  return run_job(parsed, out, err);
}

int bench_comm(const Words& words, std::ostream& out, std::ostream& err) {
  return run_tool(bench::option_table(), "lockstep-bench", words, out, err);
}

}  // namespace

int bench_command(const Words& words, std::ostream& out, std::ostream& err) {
  static const std::vector<Command> actions{
      {"comm", "Times collectives: lockstep bench comm --nproc-per-node 2 --collective all.", bench_comm},
  };
  return run_one_of(actions, "lockstep bench", words, out, err);
}

int check_command(const Words& words, std::ostream& out, std::ostream& err) {
  struct NoOptions {};
  const OptionTable<NoOptions> table("lockstep check",
                                     "Checks the nodes of a job: whether all ranks reach each other and "
                                     "compute correct results, and how fast each link is.");
  return run_tool(table, "", words, out, err);
}

int test_command(const Words& words, std::ostream& out, std::ostream& err) {
  Words with_ranks{"--nproc-per-node=2"};
  with_ranks.insert(with_ranks.end(), words.begin(), words.end());
  return run_tool(acceptance::option_table(), "lockstep-test", with_ranks, out, err);
}

int tokenizer_command(const Words& words, std::ostream&, std::ostream&) {
  Words command{program_of_lockstep("lockstep-tokenizer")};
  command.insert(command.end(), words.begin(), words.end());
  replace_process(command, process_environment());
}

}  // namespace lockstep::launch
