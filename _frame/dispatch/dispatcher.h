// A callable that stands for a function: binds arguments, checks guards, and calls the compiled code without a Python
// frame. Python name: `_core.Dispatcher`.
#pragma once
#include <Python.h>

namespace dyncomp {
extern PyTypeObject DispatcherType;
}  // namespace dyncomp
