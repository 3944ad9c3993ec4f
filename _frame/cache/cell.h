// What hangs on a code object: one cache per owner, in the interpreter's `co_extra` slot. Freed with the code object.
#pragma once
#include <Python.h>

#include <vector>

#include "cache/cache.h"
#include "cache/owner.h"

namespace dyncomp {

struct CodeCell {
  struct Slot {
    Owner* owner;  // retained
    Cache* cache;  // held
  };
  std::vector<Slot> slots;  // most recently used first
  bool never;               // this code is never compiled, under any owner
  CodeCell* previous;       // all live cells
  CodeCell* next;
};

// Asks the interpreter for a slot and checks that its layout is the one read by the hot path. False with an exception.
bool cells_init();
// The cell of a code object, or nullptr.
CodeCell* cell_peek(PyCodeObject* code);
// The cache of a code object under an owner, borrowed; nullptr (no exception) if there is none.
Cache* cell_find(CodeCell* cell, Owner* owner);
// The same, made when missing. Borrowed; nullptr with an exception.
Cache* cell_cache(PyCodeObject* code, Owner* owner);
// Marks a code object as never to be compiled, for all owners; a reset does not undo it. False with an exception.
bool cell_skip(PyCodeObject* code);
// Drops an owner's caches from all code objects.
void cells_forget_owner(Owner* owner);

}  // namespace dyncomp
