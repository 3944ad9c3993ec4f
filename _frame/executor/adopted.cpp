// What becomes of the results of a call once a backward from them was differentiated (`create_graph=True`).
//
//   r = f(x)            r -> CompiledBackward -> x
//   afterwards:         r -> ExpBackward0 -> ... -> x       and whatever was made of r before: CompiledBackward -> ExpBackward0
//
// The program has run once more by then, in eager's history. Gradients of gradients come to nodes in there, those that keep their own
// results among them, so results, and hooks that were put on them, move there.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <c10/util/Type.h>
#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "executor/autograd.h"
#include "executor/wrap.h"

namespace dyncomp::executor {

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

// Which result of its node the hook is for; null for a hook that does not say. torch does not export these classes, so they are told by
// name.
std::size_t* place_of(torch::autograd::FunctionPreHook& hook) {
  std::string name = c10::demangle(typeid(hook).name());
  if (name == "torch::autograd::PyFunctionTensorPreHook") {
    return &static_cast<torch::autograd::PyFunctionTensorPreHook&>(hook).value_idx;
  }
  if (name == "torch::autograd::CppFunctionTensorPreHook") {
    return &static_cast<torch::autograd::CppFunctionTensorPreHook&>(hook).value_idx_;
  }
  return name == "torch::autograd::CppFunctionSingleTensorPreHook" ? &static_cast<torch::autograd::CppFunctionSingleTensorPreHook&>(hook).value_idx_
                                                                    : nullptr;
}

// The hooks for one result of a node, to where that result is now.
void move_hooks(Node& from, uint32_t result, const Edge& to) {
  auto place = [&](torch::autograd::FunctionPreHook& hook) {
    std::size_t* place = place_of(hook);
    bool moves = place == nullptr ? to.input_nr == 0 && from.num_inputs() == 1 : *place == result;
    if (moves && place != nullptr) {
      *place = to.input_nr;
    }
    return moves;
  };
  auto& hooks = from.tensor_pre_hooks();
  for (auto hook = hooks.begin(); hook != hooks.end();) {
    if (!place(**hook)) {
      ++hook;
      continue;
    }
    to.function->add_tensor_pre_hook(std::move(*hook));
    hook = hooks.erase(hook);
  }
  auto number = static_cast<int>(result);
  if (auto kept = from.retains_grad_hooks().find(number); kept != from.retains_grad_hooks().end() && place(*kept->second)) {
    to.function->add_retains_grad_hook(from.pop_retains_grad_hook(number), static_cast<int>(to.input_nr));
  }
  if (to.function->num_inputs() != 1 || from.num_inputs() != 1) {
    return;  // hooks on nodes take the gradients of all results
  }
  for (auto& hook : std::exchange(from.pre_hooks(), {})) {
    to.function->add_pre_hook(std::move(hook));
  }
  for (auto& hook : std::exchange(from.post_hooks(), {})) {
    to.function->add_post_hook(std::move(hook));
  }
}

// Hooks of a view that keeps its own node, for gradients that come to its place in eager's graph.
class HooksOfView : public torch::autograd::FunctionPreHook {
 public:
  HooksOfView(Edge view, uint32_t result) : view_(std::move(view)), result_(result) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    torch::autograd::variable_list changed = gradients;
    at::Tensor& own = changed.at(result_);
    if (!own.defined()) {
      return changed;
    }
    Node& node = *view_.function;
    torch::autograd::variable_list one(node.num_inputs());
    one.at(view_.input_nr) = own;
    for (const auto& hook : node.tensor_pre_hooks()) {
      if (std::size_t* place = place_of(*hook); place != nullptr && *place == view_.input_nr) {
        one = (*hook)(one);
      }
    }
    if (auto kept = node.retains_grad_hooks().find(static_cast<int>(view_.input_nr)); kept != node.retains_grad_hooks().end()) {
      one = (*kept->second)(one);
    }
    own = one.at(view_.input_nr);
    return changed;
  }

 private:
  Edge view_;
  uint32_t result_;
};

// How often the graph task that runs was asked for a gradient of the node; who asked knows the node so often meanwhile.
std::size_t times_asked_for(const Node* node) {
  const auto* asked = torch::autograd::get_current_graph_task_exec_info();
  if (asked == nullptr) {
    return 0;
  }
  auto found = asked->find(const_cast<Node*>(node));
  return found == asked->end() || !found->second.captures_ ? 0 : found->second.captures_->size();
}

}  // namespace

void CompiledCall::set_result(std::size_t end, const at::Tensor& tensor) {
  results_.resize(training_->through.size());
  results_[end].emplace(tensor.getIntrusivePtr());
}

// A view is put into eager's history where nothing but the call's own results knows its node. Of what was made of the view before,
// gradients go on to come to that node, so there the view stays, and its hooks see what comes to either place.
void CompiledCall::adopt_views(const std::vector<std::pair<Weak, Edge>>& views) const {
  std::vector<std::pair<at::Tensor, Edge>> found;
  std::map<const Node*, std::size_t> known;  // by node, how many of the call's own results and nodes know it
  for (const auto& [weak, edge] : views) {
    auto result = weak.lock();
    at::Tensor view = result ? at::Tensor(std::move(result)) : at::Tensor();
    const Node* node = view.defined() ? torch::autograd::impl::grad_fn_unsafe(view) : nullptr;
    if (node != nullptr && std::find(gates_.begin() + static_cast<std::ptrdiff_t>(entries_.size()), gates_.end(), node) != gates_.end()) {
      ++known[node];
      found.emplace_back(std::move(view), edge);
    }
  }
  auto count = [&](const torch::autograd::edge_list& edges) {
    for (const Edge& edge : edges) {
      if (auto one = known.find(edge.function.get()); one != known.end()) {
        ++one->second;
      }
    }
  };
  for (const auto& [node, _] : known) {
    count(node->next_edges());
  }
  for (const Node* entry : entries_) {
    if (entry != nullptr) {
      count(static_cast<const CompiledBackward*>(entry)->own_edges());
    }
  }
  using Ref = CompiledBackward::Ref;
  std::vector<bool> free;
  for (const auto& [view, edge] : found) {
    Node* node = torch::autograd::impl::grad_fn_unsafe(view);
    free.push_back(references(node) <= known[node] + times_asked_for(node));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [view, edge] = found[i];
    Ref node = alive(torch::autograd::impl::grad_fn_unsafe(view));  // not asked of autograd: it may refuse a view whose base was written since
    Edge own(std::move(node), static_cast<uint32_t>(view.output_nr()));
    if (free[i]) {
      move_hooks(*own.function, own.input_nr, edge);
      torch::autograd::impl::set_gradient_edge(view, edge);
    } else {
      edge.function->add_tensor_pre_hook(std::make_unique<HooksOfView>(own, edge.input_nr));
    }
  }
}

// `ends`: by end, a tensor of eager's graph, or None. `close`: called before.
void CompiledCall::follow(const py::tuple& ends, const py::object& close) {
  using Ref = CompiledBackward::Ref;
  struct Way {
    Ref node;
    Edge edge;
    std::optional<Weak> result;
  };
  std::vector<Way> ways;
  std::vector<std::pair<Weak, Edge>> views;
  {
    std::lock_guard lock(runs_mutex_);
    for (std::size_t end = 0; end < results_.size(); ++end) {
      if (!results_[end] || !THPVariable_Check(ends[end].ptr())) {
        continue;
      }
      Edge edge = torch::autograd::impl::gradient_edge(THPVariable_Unpack(ends[end].ptr()));
      if (end >= entries_.size()) {
        views.emplace_back(*results_[end], std::move(edge));
      } else if (Ref node = entries_[end] == nullptr ? Ref() : alive(const_cast<Node*>(entries_[end]))) {
        ways.push_back({std::move(node), std::move(edge), results_[end]});
      }
    }
  }
  auto go = [ways = std::move(ways), views = std::move(views), close = std::make_shared<SharedObject>(close.ptr()), call = shared_from_this()] {
    py::gil_scoped_acquire locked;
    if (close->get() != Py_None) {
      checked(PyObject_CallNoArgs(close->get()));
    }
    for (const Way& way : ways) {
      static_cast<CompiledBackward*>(way.node.get())->follow(way.edge);
      move_hooks(*way.node, 0, way.edge);
      if (auto result = way.result->lock()) {
        at::Tensor tensor(std::move(result));
        if (torch::autograd::impl::grad_fn_unsafe(tensor) == way.node.get()) {
          torch::autograd::impl::set_gradient_edge(tensor, way.edge);
        }
      }
    }
    call->adopt_views(views);
  };
  if (torch::autograd::get_current_graph_task_id() >= 0) {
    torch::autograd::Engine::get_default_engine().queue_callback(go);
  } else {
    go();
  }
}

}  // namespace dyncomp::executor
