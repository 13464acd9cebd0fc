// Logs to MLflow what mlflow_compare.py tells it to, line by line: mlflow_peer FOLDER. Each line is one call,
// and is answered with "done", or with "error" and its text.
//
//     log STEP NAME=VALUE ...      param NAME=TEXT ...      resume STEP      finish      drop      die

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/train/trackers.hpp"

namespace {

using namespace lockstep;

struct Peer {
  std::filesystem::path folder;
  std::unique_ptr<Trackers> trackers;

  void call(std::istringstream& words) {
    if (!trackers)
      trackers = std::make_unique<Trackers>(TrackerOptions{.log_with = {"mlflow"}, .folder = folder});
    std::string what;
    words >> what;
    std::int64_t step = 0;
    if (what == "log" || what == "resume") words >> step;
    LogValues values;
    HyperParameters parameters;
    for (std::string word; words >> word;) {
      const auto at = word.find('=');
      if (what == "log") values.emplace_back(word.substr(0, at), std::strtod(word.c_str() + at + 1, nullptr));
      if (what == "param") parameters[word.substr(0, at)] = word.substr(at + 1);
    }
    if (what == "log") trackers->log(values, step);
    if (what == "param") trackers->log_hyperparameters(parameters, {});
    if (what == "resume") trackers->resume_at(step);
    if (what == "finish") trackers->finish();
    if (what == "finish" || what == "drop") trackers.reset();
    if (what == "die") ::_exit(9);
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: mlflow_peer FOLDER\n";
    return 2;
  }
  Peer peer{argv[1], nullptr};
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    try {
      peer.call(words);
      std::cout << "done" << std::endl;
    } catch (const lockstep::Error& error) {
      std::cout << "error " << error.what() << std::endl;
    }
  }
  return 0;
}
