#pragma once

#include <string>

namespace lockstep::comm {

/// The nearest caller on this thread's stack that belongs to the program, and not to Lockstep, LibTorch or
/// the system: "train_step()+0x42 in my_trainer". A function that is not exported (-rdynamic) has only its
/// file and offset, for addr2line. Empty: there is none, as in a thread of the library. Takes some
/// microseconds.
std::string call_site();

}  // namespace lockstep::comm
