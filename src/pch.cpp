// The source that makes CMake build the shared precompiled header.
