// Loaded by LD_PRELOAD: the wall clock is off by the seconds that stand in the file JUMPING_CLOCK at this
// moment, so that it jumps when the file is written. All other clocks are right. Built by table.py.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
  const char* const path = getenv("JUMPING_CLOCK");
  char text[32] = "";
  const int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t length = read(file, text, sizeof(text) - 1);
  close(file);
  return length > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const long failed = syscall(SYS_clock_gettime, clock, time);
  if (failed == 0 && clock == CLOCK_REALTIME) time->tv_sec += shift();
  return (int)failed;
}

int gettimeofday(struct timeval* restrict time, void* restrict zone) {
  struct timespec precise;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  time->tv_sec = precise.tv_sec;
  time->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* result) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (result != NULL) *result = precise.tv_sec;
  return precise.tv_sec;
}
