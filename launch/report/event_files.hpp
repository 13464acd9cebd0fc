#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/run_log.hpp"

namespace lockstep::launch {

/// Reads TensorBoard's event files (events.out.tfevents.*) of one folder, in the order of their names: those
/// of Lockstep, of transformers and of torch.utils.tensorboard. Steps that a resumed training repeats count
/// once. `source` names them for the user. A file that is damaged is read up to the damage, and named; one
/// that is being written may end within a record. *Local*. Does not throw for what it finds.
RunLog read_event_files(const std::vector<std::filesystem::path>& paths, const std::string& source);

/// The name of the host in an event file's name; empty if it has none. *Local*.
std::string host_in_event_file_name(const std::string& name);

}  // namespace lockstep::launch
