// What Python is told of an autograd graph: its structure and sizes as bytes, its nodes and hooks as objects.
#include "executor/history.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/util/Type.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_function.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "executor/walk.h"

namespace dyncomp::executor {

namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::Node;

constexpr const char* kCapsule = "dyncomp.history";

char kind_of(Node* node, PyObject* wrapper) {
  if (dynamic_cast<AccumulateGrad*>(node) != nullptr) {
    return 'a';
  }
  if (dynamic_cast<BeforeLeaf*>(node) != nullptr || dynamic_cast<CompiledBackward*>(node) != nullptr) {  // the latter passes on what it is given
    return 'r';
  }
  return THPFunction_Check(wrapper) ? 'p' : 'g';
}

// One dict of hooks.
struct HookSlot {
  char kind;  // 'k' keeps the gradient of a result, 't' of a tensor, 'b' before the node, 'g' after a gradient was accumulated, 'z' after the node
  int index;
  py::object table;
};

// The hook as the class of torch that holds Python hooks. torch does not export these classes, so they are told by name.
template <typename Python, typename Hook>
Python* python_hook(const std::unique_ptr<Hook>& hook, const char* name) {
  if (c10::demangle(typeid(*hook).name()) != std::string("torch::autograd::") + name) {
    throw Refusal{"a hook written in C++"};
  }
  return static_cast<Python*>(hook.get());
}

std::vector<HookSlot> hooks_of(Node* node) {
  using namespace torch::autograd;
  std::vector<HookSlot> slots;
  for (uint32_t i = 0; i < node->num_inputs(); ++i) {
    if (node->retains_grad_hooks().count(i) != 0) {
      slots.push_back({'k', static_cast<int>(i), py::dict()});
    }
  }
  for (const auto& hook : node->tensor_pre_hooks()) {
    auto* python = python_hook<PyFunctionTensorPreHook>(hook, "PyFunctionTensorPreHook");
    slots.push_back({'t', static_cast<int>(python->value_idx), py::reinterpret_borrow<py::object>(python->dict)});
  }
  for (const auto& hook : node->pre_hooks()) {
    auto* python = python_hook<PyFunctionPreHook>(hook, "PyFunctionPreHook");
    slots.push_back({'b', 0, py::reinterpret_borrow<py::object>(python->dict)});
  }
  if (const auto& hook = node->tensor_post_acc_grad_hooks()) {
    auto* python = python_hook<PyFunctionTensorPostAccGradHooks>(hook, "PyFunctionTensorPostAccGradHooks");
    slots.push_back({'g', 0, py::reinterpret_borrow<py::object>(python->dict)});
  }
  for (const auto& hook : node->post_hooks()) {
    auto* python = python_hook<PyFunctionPostHook>(hook, "PyFunctionPostHook");
    slots.push_back({'z', 0, py::reinterpret_borrow<py::object>(python->dict)});
  }
  return slots;
}

// The dtype that the engine casts a gradient to, if it does.
template <typename Meta>
std::optional<at::ScalarType> grad_dtype(const Meta& meta) {
  if constexpr (requires { meta.grad_dtype(); }) {
    return meta.grad_dtype();
  } else {
    return c10::typeMetaToScalarType(meta.dtype());
  }
}

// Those of all nodes of a visit.
std::vector<HookSlot> hooks_of(const Visit& visit) {
  if (!visit.call) {
    return hooks_of(visit.node.get());
  }
  std::vector<HookSlot> slots;
  for (std::size_t place = 0; place < visit.entries.size(); ++place) {
    if (visit.entries[place] != nullptr) {
      for (HookSlot& slot : hooks_of(visit.entries[place])) {
        slots.push_back({slot.kind, static_cast<int>(place), std::move(slot.table)});
      }
    }
  }
  return slots;
}

void add_metadata(const Visit& visit, Key& structure, Key& sizes, py::list* details) {
  uint32_t count = static_cast<uint32_t>(visit.inputs());
  structure.add(count);
  for (uint32_t i = 0; i < count; ++i) {
    Node* node = visit.call ? visit.entries[i] : visit.node.get();
    bool known = node != nullptr && !node->input_metadata(visit.call ? 0 : i).was_default_constructed();
    structure.add(known);
    if (!known) {
      if (details != nullptr) {
        details->append(py::none());
      }
      continue;
    }
    const auto& meta = node->input_metadata(visit.call ? 0 : i);
    if (meta.device().type() != at::kCPU) {
      throw Refusal{"tensors on " + c10::DeviceTypeName(meta.device().type(), true)};
    }
    if (meta.is_tensor_subclass() || meta.is_nested_tensor() || meta.layout() != at::kStrided) {
      throw Refusal{"gradients that are no plain tensors"};
    }
    std::optional<at::ScalarType> dtype = grad_dtype(meta);
    structure.add(static_cast<int8_t>(dtype ? static_cast<int>(*dtype) : -1));
    structure.add(static_cast<int8_t>(c10::typeMetaToScalarType(meta.dtype())));
    c10::SymIntArrayRef shape = meta.shape_as_dim_vector();
    structure.add(static_cast<uint32_t>(shape.size()));
    py::tuple shown(shape.size());
    for (std::size_t d = 0; d < shape.size(); ++d) {
      std::optional<int64_t> size = shape[d].maybe_as_int();
      if (!size) {
        throw Refusal{"gradients with symbolic sizes"};
      }
      sizes.add(*size);
      if (details != nullptr) {
        shown[d] = py::int_(*size);
      }
    }
    if (details != nullptr) {
      py::object type = dtype ? py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(*dtype))) : py::none();
      details->append(py::make_tuple(type, shown));
    }
  }
}

py::object object_of(const Visit& step, const py::object& wrapper, Key& structure) {
  switch (step.kind) {
    case 'a':
      return steal(THPVariable_Wrap(static_cast<AccumulateGrad*>(step.node.get())->variable));
    case 'c': {
      if (step.call->has_saved_hooks()) {
        throw Refusal{"hooks on saved tensors"};
      }
      const Training& program = step.call->program();
      structure.add(&program);
      py::object prepare = py::reinterpret_borrow<py::object>(program.prepare.get());
      return py::make_tuple(wrapper, prepare, step.call->saved_objects());
    }
    case 'r':
    case 'x':
      return py::none();
    case 'p':
      for (const auto& saved : reinterpret_cast<THPFunction*>(wrapper.ptr())->saved_variables) {
        if (saved.has_hooks()) {
          throw Refusal{"hooks on saved tensors"};
        }
      }
      return wrapper;
    default:
      structure.add(Py_TYPE(wrapper.ptr()));
      return wrapper;
  }
}

py::object describe(Walk& walk, const std::vector<Edge>& captured, bool details) {
  Key structure, sizes;
  auto steps = std::make_unique<Visits>(walk.visits());
  py::list objects, hooks, shown;
  std::string kinds;
  structure.add(walk.roots().size());
  for (const Edge& root : walk.roots()) {
    structure.add(walk.position(root));
  }
  for (Visit& step : *steps) {
    py::object wrapper = steal(torch::autograd::functionToPyObject(step.node));
    if (!step.call && step.kind != 'x') {
      step.kind = kind_of(step.node.get(), wrapper.ptr());
    }
    structure.add(step.kind);
    kinds.push_back(step.kind);
    objects.append(object_of(step, wrapper, structure));
    py::list metas, edges, slots;
    add_metadata(step, structure, sizes, details ? &metas : nullptr);
    structure.add(static_cast<uint32_t>(step.next_edges().size()));
    for (std::size_t i = 0; i < step.next_edges().size(); ++i) {
      auto [position, input] = walk.position(step.next_edges()[i]);
      if (step.call && position >= 0) {
        step.wanted.add(i);
      }
      structure.add(position);
      structure.add(input);
      if (details) {
        edges.append(py::make_tuple(position, input));
      }
    }
    std::vector<HookSlot> found = hooks_of(step);
    structure.add(found.size());
    for (HookSlot& slot : found) {
      structure.add(slot.kind);
      structure.add(slot.index);
      if (details) {
        slots.append(py::make_tuple(std::string(1, slot.kind), slot.index));
      }
      hooks.append(steal(PySequence_Tuple(steal(PyMapping_Values(slot.table.ptr())).ptr())));
      hooks.append(std::move(slot.table));
    }
    if (details) {
      shown.append(py::make_tuple(metas, edges, slots));
    }
  }
  py::object capsule = steal(PyCapsule_New(steps.get(), kCapsule, [](PyObject* self) {
    delete static_cast<Visits*>(PyCapsule_GetPointer(self, kCapsule));
  }));
  steps.release();
  py::list roots;
  for (const Edge& root : walk.roots()) {
    auto [position, input] = walk.position(root);
    roots.append(py::make_tuple(position, input));
  }
  py::list places;
  structure.add(captured.size());
  for (const Edge& edge : captured) {
    auto [position, input] = walk.position(edge);
    if (position < 0) {
      throw Refusal{"a gradient of what a result does not depend on"};
    }
    structure.add(position);
    structure.add(input);
    places.append(py::make_tuple(position, input));
  }
  py::object more = details ? py::object(py::make_tuple(roots, shown, places)) : py::none();
  return py::make_tuple(capsule, steal(structure.object()), steal(sizes.object()), kinds, objects, hooks, more);
}

Edge edge_of(PyObject* tensor) {
  if (!THPVariable_Check(tensor)) {
    throw Refusal{"a root that is no tensor"};
  }
  Edge edge = torch::autograd::impl::gradient_edge(THPVariable_Unpack(tensor));
  if (!edge.function) {
    throw Refusal{"a root without a history"};  // eager's engine says what is wrong
  }
  return edge;
}

}  // namespace

Visits& visits_of(PyObject* steps) {
  auto* found = static_cast<Visits*>(PyCapsule_GetPointer(steps, kCapsule));
  if (found == nullptr) {
    throw py::error_already_set();
  }
  return *found;
}

PyObject* walk_history(PyObject* roots, PyObject* inputs, bool details, bool capture) {
  HANDLE_TH_ERRORS
  try {
    std::vector<Edge> begin;
    for (py::handle root : py::reinterpret_borrow<py::tuple>(roots)) {
      begin.push_back(edge_of(root.ptr()));
    }
    std::vector<Node*> wanted;
    std::vector<Edge> held;
    for (py::handle input : py::reinterpret_borrow<py::tuple>(inputs)) {
      Edge edge = edge_of(input.ptr());
      if (!capture && dynamic_cast<AccumulateGrad*>(edge.function.get()) == nullptr) {
        throw Refusal{"inputs= with a result of an operation"};
      }
      wanted.push_back(edge.function.get());
      held.push_back(std::move(edge));
    }
    Walk walk(std::move(begin), std::move(wanted), capture);
    walk.run();
    return describe(walk, capture ? held : std::vector<Edge>(), details).release().ptr();
  } catch (const Refusal& refusal) {
    return PyUnicode_FromStringAndSize(refusal.reason.data(), static_cast<Py_ssize_t>(refusal.reason.size()));
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
  END_HANDLE_TH_ERRORS
}

PyObject* nodes_in_order(PyObject* roots) {
  HANDLE_TH_ERRORS
  std::vector<Edge> begin;
  for (py::handle root : py::reinterpret_borrow<py::tuple>(roots)) {
    begin.push_back(torch::autograd::impl::gradient_edge(THPVariable_Unpack(root.ptr())));
    TORCH_CHECK(begin.back().function, "dyncomp: a root without a history");
  }
  Walk walk(std::move(begin), {});
  walk.run();
  py::list nodes;
  for (Node* node : walk.order()) {
    nodes.append(steal(torch::autograd::functionToPyObject(walk.owner(node))));
  }
  return nodes.release().ptr();
  END_HANDLE_TH_ERRORS
}

PyObject* written_part_of(PyObject* node) {
  HANDLE_TH_ERRORS
  Node* own = THPFunction_Check(node) ? nullptr : &*reinterpret_cast<torch::autograd::THPCppFunction*>(node)->cdata;
  const auto* write = dynamic_cast<const torch::autograd::CopySlices*>(own);
  if (write == nullptr || !write->fn) {
    Py_RETURN_NONE;
  }
  return torch::autograd::functionToPyObject(write->fn);
  END_HANDLE_TH_ERRORS
}

PyObject* call_history(PyObject* steps, Py_ssize_t index, PyObject* given, bool run) {
  HANDLE_TH_ERRORS
  const Visit& visit = visits_of(steps).at(static_cast<std::size_t>(index));
  Node& node = *visit.node;
  torch::autograd::variable_list values;
  for (py::handle one : py::reinterpret_borrow<py::tuple>(given)) {
    values.push_back(one.is_none() ? at::Tensor() : THPVariable_Unpack(one.ptr()));
  }
  {
    py::gil_scoped_release unlocked;
    if (run) {
      values = visit.call ? visit.call->run_alone(std::move(values)) : node(std::move(values));
    }
    torch::autograd::validate_outputs(visit.next_edges(), values, [&](const std::string& text) { return "Function " + node.name() + " returned an " + text; });
  }
  py::tuple results(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    results[i] = values[i].defined() ? steal(THPVariable_Wrap(values[i])) : py::none();
  }
  return results.release().ptr();
  END_HANDLE_TH_ERRORS
}

PyObject* retain_history(PyObject* steps, Py_ssize_t index, Py_ssize_t place, PyObject* gradient) {
  HANDLE_TH_ERRORS
  const Visit& visit = visits_of(steps).at(static_cast<std::size_t>(index));
  Node& node = visit.call ? *visit.entries.at(static_cast<std::size_t>(place)) : *visit.node;
  place = visit.call ? 0 : place;
  auto found = node.retains_grad_hooks().find(static_cast<int>(place));
  if (found != node.retains_grad_hooks().end() && gradient != Py_None) {
    torch::autograd::variable_list values(node.num_inputs());
    values.at(static_cast<std::size_t>(place)) = THPVariable_Unpack(gradient);
    (*found->second)(values);
  }
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* release_node(PyObject* node) {
  HANDLE_TH_ERRORS
  reinterpret_cast<torch::autograd::THPCppFunction*>(node)->cdata->release_variables();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* set_history(PyObject* tensor, PyObject* other) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(tensor) && THPVariable_Check(other), "set_history takes two tensors");
  torch::autograd::impl::set_gradient_edge(THPVariable_Unpack(tensor), torch::autograd::impl::gradient_edge(THPVariable_Unpack(other)));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* lead_on(PyObject* tensor, PyObject* other) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(tensor) && (other == Py_None || THPVariable_Check(other)), "lead_on takes a tensor, and another or None");
  const auto& node = THPVariable_Unpack(tensor).grad_fn();
  TORCH_CHECK(node && node->num_outputs() == 1, "dyncomp: a tensor whose node does not lead to one other");
  node->next_edges().at(0) = other == Py_None ? Edge() : torch::autograd::impl::gradient_edge(THPVariable_Unpack(other));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

bool release_history(PyObject* steps) {
  auto* found = static_cast<Visits*>(PyCapsule_GetPointer(steps, kCapsule));
  if (found == nullptr) {
    return false;
  }
  for (Visit& step : *found) {
    if (!step.call) {
      step.node->release_variables();
      continue;
    }
    Bits outputs(step.entries.size());
    for (std::size_t k = 0; k < step.entries.size(); ++k) {
      if (step.entries[k] != nullptr) {
        outputs.add(k);
      }
    }
    step.call->release(outputs, step.wanted);
  }
  return true;
}

}  // namespace dyncomp::executor
