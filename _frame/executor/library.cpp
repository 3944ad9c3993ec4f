#include "executor/library.h"

#include <dlfcn.h>
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace dyncomp::executor {

namespace {

#ifdef __LP64__
using Header = Elf64_Ehdr;
using Segment = Elf64_Phdr;
#else
using Header = Elf32_Ehdr;
using Segment = Elf32_Phdr;
#endif

// What is wrong with the file, or nullptr.
const char* damage(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    return "it cannot be read";
  }
  auto size = static_cast<uint64_t>(file.tellg());
  Header header;
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return "it is no shared object";
  }
  if (header.e_type != ET_DYN || header.e_phentsize != sizeof(Segment)) {
    return "it is no shared object for this machine";
  }
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Segment segment;
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) {
      return "it is truncated";
    }
    if (segment.p_type == PT_LOAD && segment.p_offset + segment.p_filesz > size) {
      return "it is truncated";
    }
  }
  return nullptr;
}

}  // namespace

void* open_library(const std::string& path) {
  const char* why = damage(path);
  void* handle = why == nullptr ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (handle == nullptr) {
    throw std::runtime_error("cannot load kernels from " + path + ": " + (why != nullptr ? why : dlerror()));
  }
  return handle;
}

void close_library(void* handle) noexcept { dlclose(handle); }

unsigned long long find_symbol(void* handle, const std::string& name) noexcept {
  return reinterpret_cast<uintptr_t>(dlsym(handle, name.c_str()));
}

}  // namespace dyncomp::executor
