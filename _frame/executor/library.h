// Compiled kernels: a shared object loaded into the process.
#pragma once

#include <string>

namespace dyncomp::executor {

// A dlopen handle. Throws std::runtime_error, with the path and what is wrong, for a file that is missing or damaged: it is
// looked at before it is mapped, because touching a mapping beyond the end of a truncated file would kill the process.
void* open_library(const std::string& path);
void close_library(void* handle) noexcept;
// 0 if there is no such symbol.
unsigned long long find_symbol(void* handle, const std::string& name) noexcept;

}  // namespace dyncomp::executor
