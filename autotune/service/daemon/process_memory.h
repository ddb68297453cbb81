#pragma once

#include <sys/types.h>

#include <cstdint>

namespace dorajit::autotune {

// Bytes of memory that the process has in use, what it shares included; 0 when that is not known.
std::int64_t resident_bytes(pid_t process);

// Of this machine.
std::int64_t physical_bytes();

}  // namespace dorajit::autotune
