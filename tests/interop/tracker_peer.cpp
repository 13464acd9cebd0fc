// Writes what tracker_compare.py reads: two processes' worth of events, the second one going on at step 3.
#include <cmath>
#include <iostream>

#include "lockstep/train/trackers.hpp"

namespace {

using namespace lockstep;

void log_steps(Trackers& trackers, int first, int last, double slope) {
  for (int step = first; step <= last; ++step)
    trackers.log({{"loss", slope * step}, {"lr", std::exp(-step)}}, step);
}

int write(const std::filesystem::path& folder) {
  const TrackerOptions options{.log_with = {"tensorboard", "jsonl", "csv"}, .folder = folder};
  Trackers first(options);
  first.log_hyperparameters({{"lr", 0.5}, {"epochs", std::int64_t{3}}, {"name", "a"}, {"amsgrad", true}},
                            {"loss"});
  log_steps(first, 1, 5, 1);
  Trackers second(options);
  second.resume_at(3);
  log_steps(second, 4, 6, 10);
  second.log_text("sample", "# a text", 6);
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(std::sin(i) * 3);
  second.log_histogram("weights", histogram_of(values), 6);
  second.finish();
  first.finish();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) return write(argv[1]);
  std::cerr << "usage: tracker_peer FOLDER\n";
  return 2;
}
