#pragma once

#include "cli/commands.hpp"

namespace lockstep::launch {

/// Benchmarks collectives.
int bench_command(const Words& words, std::ostream& out, std::ostream& err);

/// Checks connections, results and links between the ranks of a job.
int check_command(const Words& words, std::ostream& out, std::ostream& err);

/// Checks this installation on several ranks.
int test_command(const Words& words, std::ostream& out, std::ostream& err);

/// Trains tokenizers, and converts texts to ids and back.
int tokenizer_command(const Words& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
