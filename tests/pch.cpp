// The source that makes CMake build the tests' precompiled headers.
