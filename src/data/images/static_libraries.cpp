#include <cstdio>

/// Debian's static libraries are compiled for executables: symbols that they refer to must be in the same
/// file. Of the C library they refer to only one variable, stderr (for messages, which our handlers replace).
/// The build renames it to this one.
extern "C" {
extern std::FILE* lockstep_image_stderr;
__attribute__((visibility("hidden"))) std::FILE* lockstep_image_stderr = stderr;
}
