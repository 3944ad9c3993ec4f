// Python names: `_core.Region`, `_core.without_hook`.
#pragma once
#include <Python.h>

namespace dyncomp {
extern PyTypeObject RegionType;
extern PyTypeObject WithoutHookType;
}  // namespace dyncomp
