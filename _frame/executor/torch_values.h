// Python values as torch's values. Apart from the rest, because torch's headers for this are costly to compile.
#pragma once

#include <Python.h>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

namespace dyncomp::executor {

// What `torch.ops` would pass for this argument. Throws BuildError if the value does not fit the argument's type.
c10::IValue to_ivalue(PyObject* object, const c10::Argument& argument);

}  // namespace dyncomp::executor
