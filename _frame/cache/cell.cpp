#include "compat.h"  // first: it opens the interpreter's internals before Python.h is read

#include "cache/cell.h"

#include <algorithm>

namespace dyncomp {
namespace {

Py_ssize_t extra_index = -1;
CodeCell* all_cells = nullptr;

void drop(CodeCell::Slot slot) {
  Py_DECREF(slot.cache);
  owner_release(slot.owner);
}

// Called by the interpreter when a code object dies.
void cell_free(void* pointer) {
  CodeCell* cell = static_cast<CodeCell*>(pointer);
  if (cell == nullptr) return;
  if (cell->previous != nullptr) cell->previous->next = cell->next;
  if (cell->next != nullptr) cell->next->previous = cell->previous;
  if (all_cells == cell) all_cells = cell->next;
  // Late in the shutdown the modules that entries refer to are gone; the process ends anyway.
  if (!compat::finalizing()) {
    for (CodeCell::Slot slot : cell->slots) drop(slot);
  }
  delete cell;
}

CodeCell* cell_make(PyCodeObject* code) {
  CodeCell* cell = new CodeCell{{}, Skip::no, false, false, nullptr, all_cells};
  if (compat::code_extra_set(code, extra_index, cell) < 0) {
    delete cell;
    return nullptr;
  }
  if (all_cells != nullptr) all_cells->previous = cell;
  all_cells = cell;
  return cell;
}

CodeCell* cell_of(PyCodeObject* code) {
  CodeCell* cell = cell_peek(code);
  return cell != nullptr ? cell : cell_make(code);
}

bool layout_holds() {
  PyCodeObject* code = PyCode_NewEmpty("<dyncomp>", "layout_check", 1);
  if (code == nullptr) return false;
  CodeCell* cell = cell_make(code);
  bool holds = cell != nullptr && compat::code_extra_peek(code, extra_index) == cell;
  if (cell != nullptr && !holds) {
    PyErr_SetString(PyExc_ImportError,
                    "dyncomp: this Python keeps code object extras in an unknown layout; its version is not supported");
  }
  Py_DECREF(code);
  return holds;
}

}  // namespace

bool cells_init() {
  extra_index = compat::code_extra_index(cell_free);
  if (extra_index < 0) {
    PyErr_SetString(PyExc_ImportError, "dyncomp: no free slot on code objects (too many frame evaluators loaded)");
    return false;
  }
  return layout_holds();
}

CodeCell* cell_peek(PyCodeObject* code) {
  return static_cast<CodeCell*>(compat::code_extra_peek(code, extra_index));
}

Cache* cell_find(CodeCell* cell, Owner* owner) {
  for (size_t i = 0; i < cell->slots.size(); ++i) {
    if (cell->slots[i].owner != owner) continue;
    auto begin = cell->slots.begin();
    std::rotate(begin, begin + static_cast<std::ptrdiff_t>(i), begin + static_cast<std::ptrdiff_t>(i) + 1);
    return cell->slots.front().cache;
  }
  return nullptr;
}

Cache* cell_cache(PyCodeObject* code, Owner* owner) {
  CodeCell* cell = cell_of(code);
  if (cell == nullptr) return nullptr;
  if (Cache* found = cell_find(cell, owner)) return found;
  Cache* cache = cache_new();
  if (cache == nullptr) return nullptr;
  cell->slots.insert(cell->slots.begin(), {owner_retain(owner), cache});
  return cache;
}

bool cell_skip(PyCodeObject* code, Skip skip) {
  CodeCell* cell = cell_of(code);
  if (cell == nullptr) return false;
  cell->skip = skip;
  return true;
}

bool cell_own(PyCodeObject* code, bool resumes) {
  CodeCell* cell = cell_of(code);
  if (cell == nullptr) return false;
  cell->ours = true;
  cell->resumes = resumes;
  return true;
}

void cells_forget_owner(Owner* owner) {
  std::vector<CodeCell::Slot> dropped;  // dropping runs Python code: not while walking the cells
  for (CodeCell* cell = all_cells; cell != nullptr; cell = cell->next) {
    auto& slots = cell->slots;
    auto keep = std::stable_partition(slots.begin(), slots.end(), [=](auto& slot) { return slot.owner != owner; });
    dropped.insert(dropped.end(), keep, slots.end());
    slots.erase(keep, slots.end());
  }
  for (CodeCell::Slot slot : dropped) drop(slot);
}

}  // namespace dyncomp
