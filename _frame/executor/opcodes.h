// Every instruction of a plan: its name and the function that builds its step from the fields of a tuple.
#pragma once

#include <Python.h>

#include "executor/fields.h"

namespace dyncomp::executor {

using BuildStep = StepPtr (*)(Builder& builder, PyObject* instruction);

// memory.cpp
StepPtr build_alloc(Builder&, PyObject*);
StepPtr build_scratch(Builder&, PyObject*);
StepPtr build_arena(Builder&, PyObject*);
StepPtr build_flag(Builder&, PyObject*);
StepPtr build_check(Builder&, PyObject*);
StepPtr build_copy(Builder&, PyObject*);
StepPtr build_write_back(Builder&, PyObject*);
StepPtr build_write_through(Builder&, PyObject*);
StepPtr build_own(Builder&, PyObject*);
StepPtr build_wrote(Builder&, PyObject*);
StepPtr build_wrote_apart(Builder&, PyObject*);
StepPtr build_free(Builder&, PyObject*);
// kernel.cpp
StepPtr build_kernel(Builder&, PyObject*);
// op.cpp
StepPtr build_op(Builder&, PyObject*);
// expect.cpp
StepPtr build_expect(Builder&, PyObject*);
// view.cpp
StepPtr build_view(Builder&, PyObject*);
StepPtr build_view_rel(Builder&, PyObject*);
StepPtr build_detach(Builder&, PyObject*);
// blas.cpp
StepPtr build_mm(Builder&, PyObject*);
StepPtr build_bmm(Builder&, PyObject*);
StepPtr build_addmm(Builder&, PyObject*);
StepPtr build_baddbmm(Builder&, PyObject*);
// integer.cpp
StepPtr build_int(Builder&, PyObject*);
StepPtr build_size(Builder&, PyObject*);
StepPtr build_stride(Builder&, PyObject*);
// number.cpp
StepPtr build_number(Builder&, PyObject*);
StepPtr build_compute(Builder&, PyObject*);

// nullptr: no such instruction. `opcode_names` lists them for the error.
BuildStep find_opcode(const char* name);
std::string opcode_names();

}  // namespace dyncomp::executor
