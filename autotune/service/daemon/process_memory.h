#pragma once

#include <sys/types.h>

#include <cstdint>

namespace dorajit::autotune {

// Resident memory of the process in bytes, including shared pages; 0 if unknown.
std::int64_t resident_bytes(pid_t process);

// Total memory of this machine.
std::int64_t physical_bytes();

}  // namespace dorajit::autotune
