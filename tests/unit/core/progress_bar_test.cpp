#include "lockstep/core/progress_bar.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <streambuf>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A bar on a text stream with a clock that stands still until it is moved.
class ProgressBarTest : public ::testing::Test {
 protected:
  ProgressBarOptions options(bool terminal) {
    return {.description = "epoch 1",
            .total = 4,
            .out = &out_,
            .terminal = terminal,
            .now = [this] { return now_; },
            .terminal_width = [this] { return width_; }};
  }

  long lines() const {
    const std::string text = out_.str();
    return std::count(text.begin(), text.end(), '\n');
  }
  long redraws() const {
    const std::string text = out_.str();
    return std::count(text.begin(), text.end(), '\r');
  }

  std::ostringstream out_;
  ProgressBarOptions::Clock::time_point now_{};
  int width_ = 100;
};

ProgressState at(std::uint64_t count, std::uint64_t total, double time) {
  ProgressState state;
  state.count = count;
  state.total = total;
  state.seconds = time;
  return state;
}

TEST(ProgressLine, SaysEverything) {
  ProgressState state = at(42, 100, 12.0);
  state.description = "epoch 3";
  state.metrics = {{"loss", "0.52"}, {"lr", "1e-3"}};
  EXPECT_EQ(progress_line(state, 0, true),
            "epoch 3:  42% |####      | 42/100 [00:12<00:16, 3.50it/s, loss=0.52, lr=1e-3]");
  EXPECT_EQ(progress_line(state, 0, false),
            "epoch 3:  42% 42/100 [00:12<00:16, 3.50it/s, loss=0.52, lr=1e-3]");
}

TEST(ProgressLine, KnowsTheEdges) {
  EXPECT_EQ(progress_line(at(0, 10, 0.0), 0, false), "  0% 0/10 [00:00<?, ?it/s]");
  EXPECT_EQ(progress_line(at(10, 10, 5.0), 0, false), "100% 10/10 [00:05<00:00, 2.00it/s]");
  EXPECT_EQ(progress_line(at(12, 10, 5.0), 0, true), "100% |##########| 12/10 [00:05<00:00, 2.40it/s]");
  EXPECT_EQ(progress_line(at(5, 0, 10.0), 0, true), "5it [00:10, 2.00s/it]");
  EXPECT_EQ(progress_line(at(1, 10, 7200.0), 0, false), " 10% 1/10 [2:00:00<18:00:00, 7200.00s/it]");
}

TEST(ProgressLine, ResumedStepsCountInThePercentageOnly) {
  ProgressState state = at(60, 100, 10.0);
  state.initial = 50;
  EXPECT_EQ(progress_line(state, 0, false), " 60% 60/100 [00:10<00:40, 1.00it/s]");
}

TEST(ProgressLine, IsOneLineWithinItsWidth) {
  ProgressState state = at(1, 2, 1.0);
  state.description = "\xC3\xA9poque\n1";
  EXPECT_EQ(progress_line(state, 6, true), "\xC3\xA9poque");
  EXPECT_EQ(progress_line(state, 0, true).find('\n'), std::string::npos);
}

/// A narrow terminal shows whole numbers, the first ones first.
TEST(ProgressLine, LeavesOutTheBarAndThenTheLastMetrics) {
  ProgressState state = at(420, 1000, 12.0);
  state.description = "training";
  state.metrics = {{"loss", "0.5213"}, {"lr", "0.0001234"}, {"samples/s", "1104"}};
  EXPECT_EQ(progress_line(state, 79, true),
            "training:  42% 420/1000 [00:12<00:16, 35.00it/s, loss=0.5213, lr=0.0001234]");
  EXPECT_EQ(progress_line(state, 100, true),
            "training:  42% 420/1000 [00:12<00:16, 35.00it/s, loss=0.5213, lr=0.0001234, samples/s=1104]");
  EXPECT_EQ(progress_line(state, 60, true), "training:  42% 420/1000 [00:12<00:16, 35.00it/s]");
}

TEST_F(ProgressBarTest, GetsOutOfTheWayOfOtherLines) {
  ProgressBar bar(options(true));
  const auto drawn = out_.str().size() - 1;
  bar.clear();
  EXPECT_TRUE(out_.str().ends_with("\r" + std::string(drawn, ' ') + "\r"));
  const auto cleared = out_.str();
  bar.clear();
  EXPECT_EQ(out_.str(), cleared) << "there is nothing any more";
}

TEST_F(ProgressBarTest, WhoKnowsNoBarClearsItsLineToo) {
  {
    ProgressBar bar(options(true));
    const auto drawn = out_.str().size() - 1;
    ProgressBar::clear_line();
    EXPECT_TRUE(out_.str().ends_with("\r" + std::string(drawn, ' ') + "\r"));
  }
  const auto ended = out_.str();
  ProgressBar::clear_line();
  EXPECT_EQ(out_.str(), ended) << "a bar that has ended keeps its last line";
}

TEST_F(ProgressBarTest, RedrawsATerminalNoMoreThanTenTimesASecond) {
  auto settings = options(true);
  settings.total = 10'000;
  {
    ProgressBar bar(settings);
    for (int step = 0; step < 1000; ++step) {
      now_ += milliseconds(1);
      bar.advance();
    }
    EXPECT_EQ(bar.count(), 1000U);
  }
  EXPECT_EQ(redraws(), 12);  // the first, ten in the second, and the last
  EXPECT_EQ(lines(), 1);
  EXPECT_EQ(out_.str().back(), '\n');
}

TEST_F(ProgressBarTest, WritesFewWholeLinesElsewhere) {
  auto settings = options(false);
  settings.total = 100;
  {
    ProgressBar bar(settings);
    for (int step = 0; step < 100; ++step) {
      now_ += milliseconds(250);
      bar.advance();
    }
  }
  EXPECT_EQ(redraws(), 0);
  EXPECT_EQ(lines(), 3);
  EXPECT_NE(out_.str().find("epoch 1:  40% 40/100 [00:10<00:15, 4.00it/s]\n"), std::string::npos);
  EXPECT_NE(out_.str().find("epoch 1: 100% 100/100 [00:25<00:00, 4.00it/s]\n"), std::string::npos);
}

TEST_F(ProgressBarTest, ShowsTheEndOfATotalAtOnce) {
  ProgressBar bar(options(true));
  bar.advance(4);
  EXPECT_NE(out_.str().find("100% |##########| 4/4"), std::string::npos);
}

TEST_F(ProgressBarTest, MetricsKeepTheirPlaceAndAreReplaced) {
  {
    ProgressBar bar(options(false));
    bar.set_metric("loss", 1.0 / 3.0);
    bar.set_metric("phase", "warm-up");
    bar.set_metric("loss", 0.25);
    bar.set_description("epoch 2");
    bar.advance();
  }
  EXPECT_NE(out_.str().find("epoch 2:  25% 1/4"), std::string::npos);
  EXPECT_NE(out_.str().find(", loss=0.25, phase=warm-up]"), std::string::npos);
}

TEST_F(ProgressBarTest, ALongerLineLeavesNothingBehind) {
  ProgressBar bar(options(true));
  bar.set_metric("m", "0123456789");
  now_ += seconds(1);
  bar.advance();
  const auto longest = out_.str().size();
  bar.set_metric("m", "0");
  now_ += seconds(1);
  bar.advance();
  const std::string last = out_.str().substr(longest);
  EXPECT_NE(last.find("m=0]         "), std::string::npos) << last;
}

TEST_F(ProgressBarTest, StaysWithinTheTerminal) {
  width_ = 20;
  ProgressBar bar(options(true));
  EXPECT_EQ(out_.str().size(), 1U + 19U);
}

TEST_F(ProgressBarTest, ClosesOnce) {
  ProgressBar bar(options(false));
  bar.close();
  bar.close();
  bar.advance();
  EXPECT_EQ(lines(), 1);
  EXPECT_EQ(bar.count(), 1U);
}

TEST_F(ProgressBarTest, OtherRanksAreSilent) {
  World world;
  world.world_size = 2;
  world.rank = 1;
  {
    ProgressBar other(world, options(true));
    other.advance(4);
  }
  EXPECT_EQ(out_.str(), "");
  world.rank = 0;
  { ProgressBar main(world, options(true)); }
  EXPECT_NE(out_.str(), "");
}

class BrokenBuffer : public std::streambuf {};

TEST_F(ProgressBarTest, ABrokenStreamIsIgnored) {
  BrokenBuffer buffer;
  std::ostream broken(&buffer);
  auto settings = options(false);
  settings.out = &broken;
  ProgressBar bar(settings);
  bar.advance(4);
  bar.close();
  EXPECT_TRUE(broken.fail());
}

}  // namespace
}  // namespace lockstep
