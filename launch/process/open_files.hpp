#pragma once

namespace lockstep::launch {

/// Raises this process's soft limit of open files to the hard one: a coordinator has a connection to each
/// node, and its store one to each rank. *Local*; before other threads start.
void raise_open_files_limit();

/// Restores the limit that this process was started with, for a child process before exec: programs that use
/// select() cannot have more than 1,024 files.
void restore_open_files_limit() noexcept;

}  // namespace lockstep::launch
