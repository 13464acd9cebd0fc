#include <cstdio>

/// Debian's static libraries are compiled for programs: what they refer to must lie in the same file, and of
/// the C library they refer to one variable only, stderr (for messages that we take over). The build renames
/// it to this one.
extern "C" {
extern std::FILE* lockstep_image_stderr;
__attribute__((visibility("hidden"))) std::FILE* lockstep_image_stderr = stderr;
}
