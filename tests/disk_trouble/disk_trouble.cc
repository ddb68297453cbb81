// A library to preload into `dorajit` that injects faults into uses of one folder: it counts the
// steps (create, write, sync, rename, remove) and, at a given step, kills or interrupts the program
// or reports a full disk. Or it lets some reads fail. It intercepts the calls between the program,
// SQLite included, and libc.
//
//   DISK_TROUBLE_FOLDER  the folder; nothing else is affected or counted
//   DISK_TROUBLE         count | kill | interrupt | full | unreadable | network
//   DISK_TROUBLE_STEP    the step of `kill` or `interrupt`, the first one with a `full` disk, or a
//                        number that determines which reads are `unreadable` and with which error
//   DISK_TROUBLE_COUNT   the file in which `count` stores the number of steps
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <atomic>

namespace {

enum class Trouble { kNone, kCount, kKill, kInterrupt, kFull, kUnreadable, kNetwork };

const char* variable(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

// Compilers that the program starts inherit the library and must not be affected.
bool is_the_program() {
  char path[4096] = {};
  if (readlink("/proc/self/exe", path, sizeof path - 1) <= 0) return false;
  const char* name = strrchr(path, '/');
  return name != nullptr && strcmp(name, "/dorajit") == 0;
}

Trouble trouble() {
  static const Trouble wanted = [] {
    const char* how = variable("DISK_TROUBLE");
    if (!is_the_program()) return Trouble::kNone;
    if (strcmp(how, "count") == 0) return Trouble::kCount;
    if (strcmp(how, "kill") == 0) return Trouble::kKill;
    if (strcmp(how, "interrupt") == 0) return Trouble::kInterrupt;
    if (strcmp(how, "full") == 0) return Trouble::kFull;
    if (strcmp(how, "unreadable") == 0) return Trouble::kUnreadable;
    if (strcmp(how, "network") == 0) return Trouble::kNetwork;
    return Trouble::kNone;
  }();
  return wanted;
}

bool is_inside(int file);

bool is_inside(const char* path) {
  static const char* folder = variable("DISK_TROUBLE_FOLDER");
  constexpr char kHeldFolders[] = "/proc/self/fd/";  // paths through an open folder
  constexpr size_t kHeldLength = sizeof kHeldFolders - 1;
  const size_t length = strlen(folder);
  if (length == 0 || path == nullptr) return false;
  if (strncmp(path, kHeldFolders, kHeldLength) == 0) return is_inside(atoi(path + kHeldLength));
  return strncmp(path, folder, length) == 0;
}

bool is_inside(int file) {
  char link[64];
  char path[4096] = {};
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  return readlink(link, path, sizeof path - 1) > 0 && is_inside(path);
}

std::atomic<long> steps{0};

// The time in which an interrupted program ends, unless it waits for this step.
constexpr useconds_t kTimeToEnd = 100'000;

// False: the disk is full at this step. `before_death` does the part of the last step that still
// happens.
template <class Place, class BeforeDeath>
bool may_step(Place place, bool needs_room, BeforeDeath before_death) {
  if (trouble() == Trouble::kNone || trouble() == Trouble::kNetwork || !is_inside(place))
    return true;
  static const long fatal = atol(variable("DISK_TROUBLE_STEP"));
  const long step = ++steps;
  if (trouble() == Trouble::kKill && step == fatal) {
    before_death();
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
  if (trouble() == Trouble::kInterrupt && step == fatal) {
    kill(getpid(), SIGINT);
    usleep(kTimeToEnd);
  }
  if (trouble() == Trouble::kFull && needs_room && step >= fatal) {
    errno = ENOSPC;
    return false;
  }
  return true;
}

template <class Place>
bool may_step(Place place, bool needs_room) {
  return may_step(place, needs_room, [] {});
}

// One read of six fails.
bool may_read(int file) {
  constexpr int kErrors[] = {EIO, ESTALE, ENOMEM};
  static const unsigned seed = static_cast<unsigned>(atol(variable("DISK_TROUBLE_STEP")));
  static std::atomic<unsigned> random{seed * 7919U + 1U};
  if (trouble() != Trouble::kUnreadable || !is_inside(file)) return true;
  random = random * 1664525U + 1013904223U;
  if (random % 65521U % 6U != 0) return true;
  errno = kErrors[seed % 3];
  return false;
}

struct AtExit {
  ~AtExit() {
    if (trouble() != Trouble::kCount) return;
    if (FILE* file = fopen(variable("DISK_TROUBLE_COUNT"), "w")) {
      fprintf(file, "%ld\n", steps.load());
      fclose(file);
    }
  }
} at_exit;

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int open_file(const char* path, int flags, mode_t mode) {
  const bool makes = (flags & O_CREAT) != 0 && access(path, F_OK) != 0;
  if (makes && !may_step(path, true)) return -1;
  static auto* next = real<int(int, const char*, int, ...)>("openat");
  return next(AT_FDCWD, path, flags, mode);
}

mode_t mode_of(int flags, va_list list) {
  return (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
}

}  // namespace

#define DORAJIT_OPEN(name)                                \
  extern "C" int name(const char* path, int flags, ...) { \
    va_list list;                                         \
    va_start(list, flags);                                \
    const mode_t mode = mode_of(flags, list);             \
    va_end(list);                                         \
    return open_file(path, flags, mode);                  \
  }
DORAJIT_OPEN(open)
DORAJIT_OPEN(open64)

extern "C" {

int mkstemp(char* pattern) {
  static auto* next = real<int(char*)>("mkstemp");
  return may_step(static_cast<const char*>(pattern), true) ? next(pattern) : -1;
}

int mkostemp(char* pattern, int flags) {
  static auto* next = real<int(char*, int)>("mkostemp");
  return may_step(static_cast<const char*>(pattern), true) ? next(pattern, flags) : -1;
}

ssize_t read(int file, void* bytes, size_t count) {
  static auto* next = real<ssize_t(int, void*, size_t)>("read");
  return may_read(file) ? next(file, bytes, count) : -1;
}

ssize_t pread(int file, void* bytes, size_t count, off_t at) {
  static auto* next = real<ssize_t(int, void*, size_t, off_t)>("pread");
  return may_read(file) ? next(file, bytes, count, at) : -1;
}

ssize_t pread64(int file, void* bytes, size_t count, off64_t at) {
  return pread(file, bytes, count, at);
}

// A process that dies during a write has written half of it.
ssize_t write(int file, const void* bytes, size_t count) {
  static auto* next = real<ssize_t(int, const void*, size_t)>("write");
  return may_step(file, true, [&] { (void)next(file, bytes, count / 2); })
             ? next(file, bytes, count)
             : -1;
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t at) {
  static auto* next = real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return may_step(file, true, [&] { (void)next(file, bytes, count / 2, at); })
             ? next(file, bytes, count, at)
             : -1;
}

ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t at) {
  return pwrite(file, bytes, count, at);
}

int ftruncate(int file, off_t size) {
  static auto* next = real<int(int, off_t)>("ftruncate");
  return may_step(file, true) ? next(file, size) : -1;
}

int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }

int fsync(int file) {
  static auto* next = real<int(int)>("fsync");
  return may_step(file, false) ? next(file) : -1;
}

int fdatasync(int file) {
  static auto* next = real<int(int)>("fdatasync");
  return may_step(file, false) ? next(file) : -1;
}

int mkdir(const char* path, mode_t mode) {
  static auto* next = real<int(const char*, mode_t)>("mkdir");
  if (access(path, F_OK) == 0) return next(path, mode);
  return may_step(path, true) ? next(path, mode) : -1;
}

int link(const char* from, const char* to) {
  static auto* next = real<int(const char*, const char*)>("link");
  return may_step(to, true) ? next(from, to) : -1;
}

int rename(const char* from, const char* to) {
  static auto* next = real<int(const char*, const char*)>("rename");
  return may_step(to, false) ? next(from, to) : -1;
}

int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
  static auto* next = real<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return may_step(to, false) ? next(from_at, from, to_at, to, flags) : -1;
}

int unlink(const char* path) {
  static auto* next = real<int(const char*)>("unlink");
  return may_step(path, false) ? next(path) : -1;
}

int statfs(const char* path, struct statfs* found) {
  static auto* next = real<int(const char*, struct statfs*)>("statfs");
  const int result = next(path, found);
  if (result == 0 && trouble() == Trouble::kNetwork && is_inside(path)) {
    found->f_type = NFS_SUPER_MAGIC;
  }
  return result;
}

}  // extern "C"
