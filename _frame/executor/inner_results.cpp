// Results of a call that its other results are made of, where somebody looks at their gradients.
//
//   h = f(x); y = g(h); return h, y            y -> h -> x: a gradient of y passes by h, whose hooks see it, as does autograd.grad(y, h)
//   t = h.t(); y = g(t); return t, y           y -> t -> h -> x, where t is a view
//   x = b[0]; x.mul_(2); y = g(x); return y    y -> x -> b, where the input x is a view of b, and written
//   x = b[0]; v = x.t(); x.mul_(2); return v@v   y -> b: what is made of another view does not pass by x
//
// The compiled backward computes the gradient of x from that of y at once, and the node of y hands nothing to the node of h. Where h has
// hooks, keeps its gradient or is asked for, the backward that runs goes from result to result in eager's history of the call.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>

#include "executor/autograd.h"
#include "executor/compiled_call.h"
#include "executor/wrap.h"

namespace dyncomp::executor {

namespace {

using torch::autograd::Node;

bool has_hooks(Node& node) {
  return !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() || !node.pre_hooks().empty() || !node.post_hooks().empty();
}

// Whether the graph task that runs was asked for the gradient that comes to the node.
bool is_asked_for(const Node* node) {
  const auto* asked = torch::autograd::get_current_graph_task_exec_info();
  if (asked == nullptr || asked->empty()) {
    return false;
  }
  auto found = asked->find(const_cast<Node*>(node));
  return found != asked->end() && found->second.captures_ && !found->second.captures_->empty();
}

}  // namespace

std::vector<const Node*> CompiledCall::passed_by(int place) const {
  std::vector<const Node*> nodes;
  std::vector<bool> met(training_->through.size());
  std::vector<int> todo = training_->through[place];
  while (!todo.empty()) {
    auto end = static_cast<std::size_t>(todo.back());
    todo.pop_back();
    if (met[end]) {
      continue;
    }
    met[end] = true;
    for (const Node* node : {gates_.empty() ? nullptr : gates_[end], end < entries_.size() ? entries_[end] : nullptr}) {
      if (node != nullptr) {
        nodes.push_back(node);
      }
    }
    todo.insert(todo.end(), training_->through[end].begin(), training_->through[end].end());
  }
  return nodes;
}

void CompiledCall::set_gate(int end, const Node* node) {
  gates_.resize(training_->through.size());
  gates_[end] = node;
}

// Whether the backward that has come to the output at `place` first passes by a result that somebody looks at.
bool CompiledCall::is_looked_at(int place) const {
  for (std::size_t k = 0; k < entries_.size(); ++k) {
    if (training_->through[k].empty() || (static_cast<int>(k) != place && (entries_[k] == nullptr || !is_executed(entries_[k])))) {
      continue;
    }
    for (const Node* node : passed_by(static_cast<int>(k))) {
      if (has_hooks(const_cast<Node&>(*node)) || is_asked_for(node)) {
        return true;
      }
    }
  }
  return false;
}

// Under the interpreter's lock.
void CompiledCall::open_cut(Run& run) {
  if (run.to_results.get() != nullptr) {
    return;
  }
  bool create_graph = at::GradMode::is_enabled();
  std::vector<bool> passed(training_->through.size());
  for (const std::vector<int>& others : training_->through) {
    for (int end : others) {
      passed[end] = true;
    }
  }
  for (std::size_t end = 0; create_graph && end < gates_.size(); ++end) {  // gradients of gradients would not come to these nodes
    const Node* node = gates_[end];
    bool written = end < entries_.size() || training_->shown[end - entries_.size()].input;
    TORCH_CHECK(!written || !passed[end] || node == nullptr || !(has_hooks(const_cast<Node&>(*node)) || is_asked_for(node)),
                "dyncomp: with create_graph=True nobody can look (by hooks, retain_grad or autograd.grad) at a view that the compiled call has written and "
                "that other results of it are made of. Wrap the function in dyncomp.disable, or compile its parts apart.");
  }
  TORCH_CHECK(!(spent_ && holds_all()), torch::autograd::ERR_BACKWARD_TWICE);
  std::vector<int> missing;
  std::vector<at::Tensor> now = inputs_again(missing);
  py::object kept = kept_for_rerun(missing), state = wrap(generator_state_);
  py::tuple inputs = wrap_all(now, numbers_);
  PyObject* arguments[] = {inputs.ptr(), state.ptr(), create_graph ? Py_True : Py_False, kept.ptr()};
  py::tuple made = checked(PyObject_Vectorcall(training_->cut.get(), arguments, 4, nullptr)).cast<py::tuple>();
  run.to_results = SharedObject(py::object(made[0]).ptr());
  run.to_inputs = SharedObject(py::object(made[1]).ptr());
  if (create_graph) {
    follow(made[2].cast<py::tuple>(), made[3]);
  }
}

// What keeps values between an output and those is not used up: only where a backward comes to the inputs is that told.
CompiledCall::Gradients CompiledCall::pass_by(int place, const at::Tensor& gradient) {
  std::shared_ptr<Run> run;
  {
    std::lock_guard lock(runs_mutex_);
    run = run_here(false);
  }
  const std::vector<int>& through = training_->through[place];
  Gradients results(through.size());
  if (!run) {
    return results;
  }
  py::gil_scoped_acquire locked;
  open_cut(*run);
  py::object number = py::int_(place), given = wrap(gradient);
  PyObject* arguments[] = {number.ptr(), given.ptr()};
  py::tuple made = checked(PyObject_Vectorcall(run->to_results.get(), arguments, 2, nullptr)).cast<py::tuple>();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (THPVariable_Check(made[i].ptr())) {
      results[i] = THPVariable_Unpack(made[i].ptr());
    }
  }
  return results;
}

// The gradients of the inputs for all that came to the outputs, past no other output.
CompiledCall::Gradients CompiledCall::through_cut(const Asked& asked) {
  open_cut(*asked.cut);
  std::vector<bool> wanted(training_->requiring.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = asked.wanted.has(i);
  }
  py::tuple incoming = wrap_all(asked.gradients), places = py::tuple(wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    places[i] = py::bool_(wanted[i]);
  }
  PyObject* arguments[] = {incoming.ptr(), places.ptr()};
  return spread(checked(PyObject_Vectorcall(asked.cut->to_inputs.get(), arguments, 2, nullptr)).ptr());
}

}  // namespace dyncomp::executor
