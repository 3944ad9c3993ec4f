#include "executor/opcodes.h"

#include <cstring>

namespace dyncomp::executor {

namespace {

struct Row {
  const char* name;
  BuildStep build;
};

constexpr Row kOpcodes[] = {
    {"alloc", build_alloc},
    {"scratch", build_scratch},
    {"arena", build_arena},
    {"flag", build_flag},
    {"check", build_check},
    {"copy", build_copy},
    {"write_back", build_write_back},
    {"write_through", build_write_through},
    {"own", build_own},
    {"wrote", build_wrote},
    {"wrote_apart", build_wrote_apart},
    {"free", build_free},
    {"kernel", build_kernel},
    {"op", build_op},
    {"expect", build_expect},
    {"view", build_view},
    {"view_rel", build_view_rel},
    {"detach", build_detach},
    {"mm", build_mm},
    {"bmm", build_bmm},
    {"addmm", build_addmm},
    {"baddbmm", build_baddbmm},
    {"int", build_int},
    {"size", build_size},
    {"stride", build_stride},
    {"number", build_number},
    {"compute", build_compute},
};

}  // namespace

BuildStep find_opcode(const char* name) {
  for (const Row& row : kOpcodes) {
    if (std::strcmp(row.name, name) == 0) {
      return row.build;
    }
  }
  return nullptr;
}

std::string opcode_names() {
  std::string names;
  for (const Row& row : kOpcodes) {
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  return names;
}

}  // namespace dyncomp::executor
