// Objects that must differ: the check kind `distinct`.
//
// Payload: (groups, others): groups = (nodes, ...), nodes = (index, ...), others = (index, ...). It holds when no object of a
// group is one of another group's or of the others'. Objects of one group, and of the others, may be the same.
//   ((a,), (b,), (c,)), ()      three different objects
//   ((x,),), (y, z)             x is neither y nor z
#pragma once
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace dyncomp {

struct Distinct {
  std::vector<int32_t> nodes;   // those of groups, then the others
  std::vector<int32_t> groups;  // the group of each, -1 for the others
  mutable std::vector<int32_t> table;  // by hash: position in `nodes`, or -1; a power of two. Used under the interpreter's lock.
};

// From the payload of a check on node `position`; nullptr with an exception.
std::unique_ptr<Distinct> distinct_build(PyObject* payload, int32_t position);
// True if all are different. Else, if asked for, the two nodes that hold the same object.
bool distinct_holds(const Distinct& distinct, PyObject* const* values, int32_t* first = nullptr, int32_t* second = nullptr);

}  // namespace dyncomp
