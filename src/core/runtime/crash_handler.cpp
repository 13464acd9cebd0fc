#include "core/runtime/crash_handler.hpp"

#include <cxxabi.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <typeinfo>

#include "core/runtime/signal_safe.hpp"
#include "core/runtime/stack_trace.hpp"

namespace lockstep {
namespace {

using namespace signal_safe;

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

/// State of the handler, allocated in advance.
struct CrashReport {
  char error_file[PATH_MAX] = {};
  /// The report is assembled here: backtrace_symbols_fd can only write to a file.
  int scratch = -1;
  std::atomic<bool> begun{false};
  /// What std::terminate knew about the exception.
  Text exception;
  /// It is one of c10d's, as NCCL's watchdog throws them: another rank is the cause.
  bool of_communication = false;
  std::terminate_handler next_terminate = nullptr;
};
CrashReport crash_report;

std::atomic<bool> crash_stacks_enabled{false};

/// The kernel keeps one such stack per thread. Without one, the fault is handled on the stack that
/// overflowed, and the process dies without a message.
class CrashStack {
 public:
  CrashStack() noexcept
      : memory_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) return;
    stack_t stack{};
    stack.ss_sp = memory_;
    stack.ss_size = kBytes;
    sigaltstack(&stack, nullptr);
  }
  ~CrashStack() {
    if (memory_ == MAP_FAILED) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    munmap(memory_, kBytes);
  }
  CrashStack(const CrashStack&) = delete;
  CrashStack& operator=(const CrashStack&) = delete;

 private:
  static constexpr std::size_t kBytes = 1 << 16;
  void* memory_;
};

void put_headline(int file, int number, const siginfo_t& info) noexcept {
  const char* name = sigabbrev_np(number);
  Text line;
  line.add("SIG{} ({})", name == nullptr ? "NAL" : name, sigdescr_np(number));
  if (info.si_code > 0 && number != SIGABRT) {
    line.add(" at address {:#x}", reinterpret_cast<std::uintptr_t>(info.si_addr));
  }
  line.add(" in thread {}", thread_name(static_cast<pid_t>(syscall(SYS_gettid))).view());
  put(file, line.view());
  if (crash_report.exception.view().empty()) return;
  put(file, ": ");
  put(file, crash_report.exception.view());
}

void put_escaped(int file, std::string_view text) noexcept {
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '\n') {
      put(file, "\\n");
    } else if (letter == '"' || letter == '\\') {
      put(file, "\\");
      put(file, {&letter, 1});
    } else {
      // Bytes that are not UTF-8 (a path in another encoding) would make the whole file unreadable.
      put(file, code >= ' ' && code < 0x7f ? std::string_view(&letter, 1) : "?");
    }
  }
}

/// The bytes [from, to) of the scratch file.
void put_scratch(int file, off_t from, off_t to) noexcept {
  char part[512];
  while (from < to) {
    const auto most = static_cast<std::size_t>(to - from);
    const ssize_t count = pread(crash_report.scratch, part, most < sizeof part ? most : sizeof part, from);
    if (count <= 0) return;
    put_escaped(file, {part, static_cast<std::size_t>(count)});
    from += count;
  }
}

/// torchrun shows py_callstack instead of the message, so it contains the message too.
void write_error_file(int number, const siginfo_t& info, const void* context) noexcept {
  const int file = open(crash_report.error_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return;
  put_headline(crash_report.scratch, number, info);
  const off_t headline = lseek(crash_report.scratch, 0, SEEK_CUR);
  put(crash_report.scratch, "\n");
  write_interrupted_stack(crash_report.scratch, context);
  const off_t end = lseek(crash_report.scratch, 0, SEEK_CUR);
  put(file, R"({"message": {"message": ")");
  put_scratch(file, 0, headline);
  put(file, R"(", "extraInfo": {)");
  if (crash_report.of_communication) put(file, R"("is_secondary": true, )");
  put(file, R"("py_callstack": ")");
  put_scratch(file, 0, end);
  put(file, Text().add(R"(", "timestamp": "{}"}}}}}})", time(nullptr)).view());
  close(file);
}

void on_fault(int number, siginfo_t* info, void* context) {
  std::signal(number, SIG_DFL);
  if (!crash_report.begun.exchange(true)) {
    write_error_file(number, *info, context);
  } else {
    // Another thread writes the report: give it time, because returning ends the process.
    sleep_milliseconds(500);
  }
  // A fault occurs again when the handler returns; a signal that was sent does not.
  if (info->si_code <= 0) std::raise(number);
}

std::string_view text_of_exception(char* demangled) {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return demangled == nullptr ? "an exception" : "an exception of an unknown type";
  }
}

/// Records the exception in flight for the handler of SIGABRT.
void note_exception() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  Text& text = crash_report.exception;
  text.add("std::terminate was called");
  if (type != nullptr) {
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(type->name(), nullptr, nullptr, nullptr), std::free);
    const std::string_view type_name = name ? name.get() : type->name();
    text.add(" because of {}: {}", type_name, text_of_exception(name.get()));
    crash_report.of_communication = type_name.starts_with("c10::Dist");
  }
}

[[noreturn]] void on_terminate() {
  note_exception();
  if (crash_report.next_terminate != nullptr) crash_report.next_terminate();
  std::abort();
}

void install() noexcept {
  crash_report.scratch = memfd_create("lockstep-crash-report", MFD_CLOEXEC);
  if (crash_report.scratch < 0) return;
  prepare_backtraces();
  crash_stacks_enabled = true;
  use_crash_stack();
  crash_report.next_terminate = std::set_terminate(on_terminate);
  for (const int number : kFaults) handle_unless_taken(number, on_fault, 0);
}

}  // namespace

void install_crash_handler(const std::string& error_file) noexcept {
  if (error_file.size() >= sizeof crash_report.error_file) return;
  std::memcpy(crash_report.error_file, error_file.c_str(), error_file.size() + 1);
  [[maybe_unused]] static const bool installed = (install(), true);
}

void use_crash_stack() noexcept {
  if (!crash_stacks_enabled) return;
  [[maybe_unused]] static thread_local const CrashStack stack;
}

}  // namespace lockstep
