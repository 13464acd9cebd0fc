#include <gtest/gtest.h>

#include <algorithm>

#include "launcher_process.hpp"
#include "lockstep/core/error.hpp"
#include "slurm/script.hpp"

namespace lockstep::launch {
namespace {

using Words = std::vector<std::string>;

std::string script(const Words& words) {
  return slurm_script(slurm_option_table().parse(words), "/opt/lockstep");
}

std::string refusal(const Words& words) {
  try {
    return "accepted: " + script(words);
  } catch (const UsageError& error) {
    return error.what();
  }
}

/// The directives and settings, one a line.
bool has_line(const std::string& text, const std::string& line) {
  return text.find("\n" + line + "\n") != std::string::npos;
}

void expect_lines(const std::string& text, const Words& lines) {
  for (const auto& line : lines) EXPECT_TRUE(has_line(text, line)) << line << " is not in:\n" << text;
}

TEST(SlurmScript, TheTemplateFollowsFromTheOptions) {
  EXPECT_NE(script({}).find("# One node, one launcher"), std::string::npos);
  EXPECT_NE(script({"--nodes", "2"}).find("# Several nodes, one launcher"), std::string::npos);
  EXPECT_NE(script({"--array", "1-9"}).find("# A job array"), std::string::npos);
  EXPECT_NE(script({"--signal-before", "90"}).find("# A job that saves"), std::string::npos);
}

TEST(SlurmScript, ALauncherIsOneTaskWithTheCpusOfItsRanks) {
  expect_lines(
      script({"--nodes", "2", "--nproc-per-node", "4", "--cpus-per-rank", "3", "--gpus-per-node", "4"}),
      {"#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --cpus-per-task=12",
       "#SBATCH --gpus-per-node=4", "nproc_per_node=4", "lockstep=/opt/lockstep"});
}

TEST(SlurmScript, WithoutALauncherEachRankIsATask) {
  expect_lines(script({"--template", "many-nodes-by-srun", "--nodes", "3", "--nproc-per-node", "2"}),
               {"#SBATCH --nodes=3", "#SBATCH --ntasks-per-node=2", "#SBATCH --cpus-per-task=1"});
}

TEST(SlurmScript, TheProgramIsQuoted) {
  expect_lines(script({"--", "./a b", "it's", "$HOME", "-x=1"}),
               {"program=('./a b' 'it'\\''s' '$HOME' -x=1)"});
}

TEST(SlurmScript, DirectivesAreReplacedOrAdded) {
  const std::string text =
      script({"--time", "4:00:00", "--partition", "gpu", "--account", "a", "--qos", "high", "--mem", "64G",
              "--job-name", "j", "--output", "o-%j", "--sbatch", "exclusive,time=5:00"});
  expect_lines(text,
               {"#SBATCH --time=5:00", "#SBATCH --partition=gpu", "#SBATCH --account=a", "#SBATCH --qos=high",
                "#SBATCH --mem=64G", "#SBATCH --job-name=j", "#SBATCH --output=o-%j", "#SBATCH --exclusive"});
  EXPECT_EQ(text.find("#SBATCH --time=4"), std::string::npos);
}

TEST(SlurmScript, FurtherOptionsMayBeGivenSeveralTimesAndHaveCommas) {
  const std::string text =
      script({"--sbatch", "mail-type=END,FAIL,exclusive", "--nodes", "2",
              "--sbatch=constraint=a100,export=ALL,FOO=bar", "prog", "--sbatch", "its own"});
  expect_lines(text,
               {"#SBATCH --mail-type=END,FAIL", "#SBATCH --exclusive", "#SBATCH --constraint=a100",
                "#SBATCH --export=ALL,FOO=bar", "#SBATCH --nodes=2", "program=(prog --sbatch 'its own')"});
}

/// A program in the place of sbatch, which shows what it gets.
TEST(SlurmSubmit, PassesNothingOfTheStepOn) {
  const ScratchFolder folder;
  folder.write("sbatch", "#!/bin/sh\nenv\n", true);
  const Finished end = launch({"slurm", "submit", "true"}, {{"PATH", folder.path() + ":/usr/bin:/bin"},
                                                            {"SLURM_JOB_ID", "7"},
                                                            {"SLURM_CPU_BIND", "quiet,mask_cpu:0x1"},
                                                            {"SLURM_NTASKS", "4"},
                                                            {"SLURM_MEM_PER_NODE", "100"},
                                                            {"SLURM_CONF", "/etc/its.conf"},
                                                            {"SBATCH_ACCOUNT", "mine"},
                                                            {"PMI_RANK", "0"}});
  EXPECT_EQ(end.status, 0) << end.err;
  for (const auto* gone :
       {"SLURM_JOB_ID", "SLURM_CPU_BIND", "SLURM_NTASKS", "SLURM_MEM_PER_NODE", "PMI_RANK"})
    EXPECT_EQ(end.out.find(gone), std::string::npos) << end.out;
  for (const auto* kept : {"SLURM_CONF=/etc/its.conf", "SBATCH_ACCOUNT=mine"})
    EXPECT_NE(end.out.find(kept), std::string::npos) << end.out;
}

TEST(SlurmScript, TheSignalAndTheTimeToSaveBelongTogether) {
  expect_lines(script({"--signal-before", "91"}), {"#SBATCH --signal=B:USR1@91", "save_seconds=46"});
}

TEST(SlurmScript, ContradictionsAreExplained) {
  const std::pair<Words, const char*> cases[] = {
      {{"--template", "one-node", "--nodes", "2"}, "--nodes and --template one-node contradict each other"},
      {{"--array", "1-2", "--signal-before", "9"}, "ask for different templates"},
      {{"--template", "one-node", "--signal-before", "9"}, "does not catch SIGUSR1"},
      {{"--template", "elastic", "--array", "1-2"}, "--array and --template elastic"},
      {{"--min-nodes", "1"}, "only elastic has such a setting"},
      {{"--template", "elastic", "--min-nodes", "2"}, "--min-nodes 2: expected at most --nodes 1"},
      {{"--nodes", "2", "--nproc-per-node", "4", "--ntasks", "8"}, "--nodes 2 make 2. Leave --ntasks out"},
      {{"--template", "many-nodes-by-srun", "--nodes", "2", "--nproc-per-node", "4", "--ntasks", "2"},
       "--nodes 2 and --nproc-per-node 4 make 8"},
      {{"--nproc-per-node", "4", "--gpus-per-node", "2"}, "each rank needs a GPU of its own"},
      {{"--time", "1:00\n#SBATCH --x"}, "expected one word"},
      {{"--template", "no-such"}, "no-such"}};
  for (const auto& [words, part] : cases)
    EXPECT_NE(refusal(words).find(part), std::string::npos) << refusal(words);
  EXPECT_NO_THROW(script({"--nodes", "2", "--nproc-per-node", "4", "--ntasks", "2"}));
}

TEST(SlurmTemplates, EachKeepsItsSecretInTheEnvironmentAndTakesAProgram) {
  for (const auto& each : slurm_templates()) {
    expect_lines(each.text, {"LOCKSTEP_JOB_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d \" \\n\")",
                             "export LOCKSTEP_JOB_TOKEN", "if (($# > 0)); then program=(\"$@\"); fi"});
    EXPECT_NE(script({"--template", each.name, "x"}).find("\nprogram=(x)\n"), std::string::npos) << each.name;
  }
}

TEST(LauncherInABatchScript, SaysThatItIsAlone) {
  const auto words_of = [](const Words& flags, const Environment& variables) {
    Words words{"run"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.push_back("true");
    Environment all{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"OMP_NUM_THREADS", "1"}};
    for (const auto& [name, value] : variables) all[name] = value;
    const Finished end = launch(words, all);
    EXPECT_EQ(end.status, 0) << end.err;
    return end.err;
  };
  const std::string alone = "lockstep run: Slurm job 7 has 4 tasks, but this program was not started by srun";
  EXPECT_EQ(words_of({}, {}).find(alone), 0U);
  EXPECT_EQ(words_of({"--nproc-per-node=4"}, {{"SLURM_JOB_NUM_NODES", "2"}}).find(alone), 0U);
  EXPECT_EQ(words_of({"--nproc-per-node=4"}, {{"SLURM_JOB_NUM_NODES", "1"}}), "") << "a rank for each task";
  EXPECT_EQ(words_of({"--standalone"}, {}), "") << "it was asked for";
  EXPECT_EQ(words_of({}, {{"SLURM_NTASKS", "1"}}), "");
}

TEST(SlurmCommand, SubmitsTheScriptThatItPrints) {
  const ScratchFolder folder;
  folder.write("sbatch", "#!/bin/sh\ncat >\"$SEEN\"\necho \"$*\" >>\"$SEEN\"\necho 4711\nexit 3\n", true);
  const Environment variables{{"PATH", folder.path() + ":/usr/bin:/bin"}, {"SEEN", folder.file("seen")}};
  const Finished submitted = launch({"slurm", "submit", "--nodes", "2", "./train"}, variables);
  EXPECT_EQ(submitted.out, "4711\n");
  EXPECT_EQ(submitted.status, 3);
  EXPECT_EQ(read_file(folder.file("seen")),
            launch({"slurm", "script", "--nodes", "2", "./train"}).out + "--parsable\n");
}

TEST(SlurmCommand, ExplainsItself) {
  const Finished wrong = launch({"slurm", "script", "--nodez", "2"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("lockstep slurm: "), std::string::npos);
  EXPECT_NE(wrong.err.find("--nodes"), std::string::npos);
  EXPECT_EQ(launch({"slurm"}).status, 2);
  EXPECT_EQ(launch({"slurm", "--help"}).status, 0);
  const Finished none = launch({"slurm", "submit"}, {{"PATH", "/nowhere"}});
  EXPECT_EQ(none.status, 127);
  EXPECT_NE(none.err.find("cannot start 'sbatch': no such program"), std::string::npos);
  const std::string listed = launch({"slurm", "templates"}).out;
  EXPECT_EQ(std::count(listed.begin(), listed.end(), '\n'),
            static_cast<std::ptrdiff_t>(slurm_templates().size()));
}

TEST(SlurmCommand, TheDocumentationIsThatOfTheTable) {
  EXPECT_NE(read_file(LOCKSTEP_DOCS "/slurm.md").find(slurm_option_table().markdown_table() + "<!-- end -->"),
            std::string::npos)
      << "put this table into docs/slurm.md:\n"
      << slurm_option_table().markdown_table();
}

}  // namespace
}  // namespace lockstep::launch
