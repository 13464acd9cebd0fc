#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>

#include "launcher_process.hpp"
#include "logs/console.hpp"
#include "logs/log_forwarder.hpp"

namespace lockstep::launch {
namespace {

using Words = std::vector<std::string>;

struct Pipe {
  int ends[2] = {-1, -1};

  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(int end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
};

/// Reads until the other end is closed.
std::string read_all(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(descriptor, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  return text;
}

TEST(LineSplitter, CutsAtLineEndsAndReturns) {
  Words lines;
  const auto take = [&](std::string_view line) { lines.emplace_back(line); };
  LineSplitter splitter;
  for (const auto* text : {"a\nb", "c\n\n", "\r 1%", "\r 2%\r", "\n", "dos\r\n", "rest"})
    splitter.add(text, take);
  EXPECT_EQ(lines, (Words{"a", "bc", "", " 1%", " 2%", "dos"}));
  splitter.finish(take);
  splitter.finish(take);
  EXPECT_EQ(lines.size(), 7U);
  EXPECT_EQ(lines.back(), "rest");
  splitter.add(std::string(LineSplitter::kLongest + 1, 'x'), take);
  EXPECT_EQ(lines.back().size(), LineSplitter::kLongest + 1);
}

TEST(Tail, KeepsTheEnd) {
  Tail tail;
  EXPECT_EQ(tail.last_lines(3), "");
  for (int i = 0; i < 100'000; ++i) tail.add("line " + std::to_string(i) + "\n");
  EXPECT_EQ(tail.last_lines(2), "line 99998\nline 99999");
  EXPECT_EQ(tail.last_lines(0), "");
  tail.add(std::string(3 * Tail::kMost, 'x'));
  EXPECT_EQ(tail.last_lines(1).size(), Tail::kMost);
}

TEST(LinePrefix, IsTorchrunsTemplate) {
  EXPECT_EQ(line_prefix("", "trainer", 9, 1), "[trainer1]:");
  EXPECT_EQ(line_prefix("${role_name}|$rank|${local_rank}|$rank_|$$|", "t", 9, 1), "t|9|1|$rank_|$$|");
}

TEST(LogFile, IsSetAsideAtItsLargestSize) {
  const ScratchFolder folder;
  LogFile log(folder.file("log"), 10);
  for (const auto* text : {"one\n", "two\n", "three\n", "four\n"}) EXPECT_TRUE(log.write(text));
  EXPECT_EQ(read_file(folder.file("log")), "four\n");
  EXPECT_EQ(read_file(folder.file("log.1")), "three\n");
  EXPECT_TRUE(log.write("longer than all of it\n"));
  EXPECT_EQ(read_file(folder.file("log.1")), "n all of i") << "the only line that is cut";
  EXPECT_EQ(read_file(folder.file("log")), "t\n");
}

TEST(LogFile, CutsNoLineWhateverPartsAreWritten) {
  const std::string text = [] {
    std::string lines;
    for (int i = 0; i < 400; ++i) lines += std::string(static_cast<std::size_t>(i * 7 % 40), 'x') + "\n";
    return lines;
  }();
  for (const std::size_t part : {1U, 3U, 16U, 41U, 64U, 100U, 1000U}) {
    const ScratchFolder folder;
    LogFile log(folder.file("log"), 64);
    std::string kept, before;
    for (std::size_t at = 0; at < text.size(); at += part) {
      EXPECT_TRUE(log.write(text.substr(at, part)));
      const std::string old = read_file(folder.file("log.1"));
      EXPECT_TRUE(old.empty() || old.ends_with('\n')) << part;
      EXPECT_LE(old.size(), 64U + 40) << part;
      if (part < 64 && old != before) kept += old;
      before = old;
    }
    const std::string last = read_file(folder.file("log"));
    EXPECT_LE(last.size(), 64U + 40) << part;
    EXPECT_TRUE(text.ends_with(before + last)) << part;
    EXPECT_TRUE(part >= 64 || kept + last == text) << part << ": " << kept << last;
  }
}

TEST(LogFile, EndsOnAFullDiskAndSaysSoOnce) {
  LogFile log("/dev/full", 0);
  EXPECT_FALSE(log.write("text"));
  EXPECT_TRUE(log.write("text"));
}

/// A rank may have several processes beside each other: the one that trains, and its spare.
TEST(LogForwarder, KeepsTheEndOfEachProcessUntilItIsForgotten) {
  const ScratchFolder folder;
  Console console({});
  LogForwarder forwarder(console);
  const auto open = [&](int process) {
    return forwarder.open({.local_rank = 1,
                           .process = process,
                           .number = STDERR_FILENO,
                           .shown = false,
                           .copy = LogFile(folder.file(std::to_string(process)), 0)});
  };
  net::FileDescriptor first = open(0), spare = open(1);
  ASSERT_EQ(write(first.get(), "of the first\n", 13), 13);
  ASSERT_EQ(write(spare.get(), "of the spare\n", 13), 13);
  forwarder.flush();
  EXPECT_EQ(forwarder.last_lines(1, 0, 5), "of the first");
  EXPECT_EQ(forwarder.last_lines(1, 1, 5), "of the spare");
  forwarder.forget(1, 0);
  EXPECT_EQ(forwarder.last_lines(1, 0, 5), "");
  // The first process of the next round.
  open(0);
  EXPECT_EQ(forwarder.last_lines(1, 1, 5), "");
}

/// A job may have any number of processes, one after the other.
TEST(LogForwarder, HoldsNothingOfProcessesThatHaveEnded) {
  const ScratchFolder folder;
  Console console({});
  LogForwarder forwarder(console);
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  std::ptrdiff_t before = 0;
  for (int process = 0; process < 5; ++process) {
    forwarder.open({.process = process, .shown = false, .copy = LogFile(folder.file("log"), 0)});
    forwarder.pump();
    if (process == 0) before = descriptors();
    EXPECT_EQ(descriptors(), before) << process;
  }
}

TEST(AsyncWriter, WritesAllInOrder) {
  Pipe pipe;
  std::thread writer_thread([&] {
    {
      AsyncWriter writer(pipe.ends[1]);
      for (int i = 0; i < 1000; ++i) writer.write(std::to_string(i) + "\n");
    }
    pipe.close_end(1);
  });
  std::string expected;
  for (int i = 0; i < 1000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_EQ(read_all(pipe.ends[0]), expected);
  writer_thread.join();
}

TEST(AsyncWriter, DropsLinesWhenNobodyReadsAndSaysHowMany) {
  Pipe pipe;
  const std::string line(1023, 'x');
  std::string text;
  std::thread reader;
  {
    AsyncWriter writer(pipe.ends[1], 200 * 1024);
    // The pipe takes 64 of them, and the queue 200.
    for (int i = 0; i < 1000; ++i) writer.write(line + "\n");
    writer.write_always("the launcher's own word\n");
    reader = std::thread([&] { text = read_all(pipe.ends[0]); });
  }
  pipe.close_end(1);
  reader.join();
  long dropped = 0;
  long notices = 0;
  const std::string head = "\nlockstep run: ";
  for (auto at = text.find(head); at != std::string::npos; at = text.find(head, at + 1)) {
    dropped += std::atol(text.c_str() + at + head.size());
    ++notices;
  }
  const auto kept = std::count(text.begin(), text.end(), '\n') - notices - 1;
  EXPECT_EQ(kept + dropped, 1000);
  EXPECT_GT(dropped, 600);
  EXPECT_TRUE(text.ends_with("\nthe launcher's own word\n"));
}

TEST(AsyncWriter, ContinuesWithoutAReader) {
  Pipe pipe;
  pipe.close_end(0);
  std::signal(SIGPIPE, SIG_IGN);
  AsyncWriter writer(pipe.ends[1]);
  for (int i = 0; i < 1000; ++i) writer.write("text\n");
}

TEST(AsyncWriter, WaitsForANonBlockingTerminal) {
  Pipe pipe;
  fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK);
  std::string text;
  std::thread reader([&] { text = read_all(pipe.ends[0]); });
  {
    AsyncWriter writer(pipe.ends[1]);
    for (int i = 0; i < 300; ++i) writer.write(std::string(1023, 'x') + "\n");
  }
  pipe.close_end(1);
  reader.join();
  EXPECT_EQ(text.size(), 300U * 1024);
}

/// The launcher with its standard output going into `descriptor`.
LauncherProcess launch_into(int descriptor, Words arguments, const Environment& variables = {}) {
  return LauncherProcess(std::move(arguments), variables, [descriptor] { dup2(descriptor, STDOUT_FILENO); });
}

TEST(LauncherConsole, AStoppedReaderHoldsNoRank) {
  const ScratchFolder folder;
  Pipe pipe;
  LauncherProcess launcher = launch_into(
      pipe.ends[1],
      {"run", "--tee=1", "--log-dir", folder.path(), "sh", "-c",
       "yes 0123456789012345678901234567890 | head -n 2000000; echo done > " + folder.file("done")});
  pipe.close_end(1);
  // 64 MB: the pipe takes 64 KiB, and nobody reads.
  ASSERT_TRUE(eventually([&] { return read_file(folder.file("done")) == "done\n"; }));
  std::string text;
  std::thread reader([&] { text = read_all(pipe.ends[0]); });
  EXPECT_EQ(launcher.wait().status, 0);
  reader.join();
  EXPECT_NE(text.find(" lines of the ranks were dropped here"), std::string::npos);
  EXPECT_LT(text.size(), 60'000'000U);
}

TEST(LauncherConsole, ItsSignalsWorkWhileNobodyReads) {
  const ScratchFolder folder;
  Pipe pipe;
  LauncherProcess launcher =
      launch_into(pipe.ends[1], {"run", "--tee=1", "sh", "-c",
                                 "echo $$ > " + folder.file("new") + "; mv " + folder.file("new") + " " +
                                     folder.file("pid") + "; exec yes"});
  const pid_t rank = await_number(folder.file("pid"));
  launcher.signal(SIGTERM);
  EXPECT_TRUE(await_end(rank));
  // What waits for the console still waits; a second signal ends that as for any program.
  launcher.signal(SIGTERM);
  EXPECT_NE(launcher.wait().status, 0);
}

TEST(LauncherConsole, ASecondSignalEndsItWhileNobodyReads) {
  const ScratchFolder folder;
  Pipe pipe;
  LauncherProcess launcher =
      launch_into(pipe.ends[1], {"run", "--tee=1", "sh", "-c",
                                 "trap '' TERM; echo $$ > " + folder.file("new") + "; mv " +
                                     folder.file("new") + " " + folder.file("pid") + "; yes"});
  const pid_t rank = await_number(folder.file("pid"));
  launcher.signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  launcher.signal(SIGTERM);
  EXPECT_TRUE(await_end(rank));
  EXPECT_NE(launcher.wait().status, 0);
}

/// What a launcher prints on a terminal.
std::string on_a_terminal(const Environment& variables) {
  int terminal = -1;
  int end = -1;
  EXPECT_EQ(openpty(&terminal, &end, nullptr, nullptr, nullptr), 0);
  std::string text;
  {
    LauncherProcess launcher =
        launch_into(end, {"run", "--nproc-per-node=2", "--tee=1", "sh", "-c", "echo word $RANK"}, variables);
    close(end);
    std::thread reader([&] { text = read_all(terminal); });
    EXPECT_EQ(launcher.wait().status, 0);
    reader.join();
  }
  close(terminal);
  return text;
}

TEST(LauncherConsole, RanksHaveColoursOnATerminal) {
  const std::string text = on_a_terminal({{"TERM", "xterm"}, {"OMP_NUM_THREADS", "1"}, {"NO_COLOR", ""}});
  EXPECT_NE(text.find("\x1b[36m[default0]:\x1b[0mword 0\r\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\x1b[32m[default1]:\x1b[0mword 1\r\n"), std::string::npos) << text;
  for (const Environment& variables :
       {Environment{{"TERM", "xterm"}, {"NO_COLOR", "1"}}, {{"TERM", "dumb"}}}) {
    EXPECT_EQ(on_a_terminal(variables).find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::launch
