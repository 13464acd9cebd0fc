// Nothing: the target that holds the tests' precompiled header needs a source.
