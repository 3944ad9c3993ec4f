// How a backward goes through the nodes of a call: gradients arrive at the outputs, and leave at the inputs.
#include "executor/autograd.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

namespace dyncomp::executor {

namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

}  // namespace

bool is_executed(const Node* node) {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (node == nullptr || nodes == nullptr || nodes->count(const_cast<Node*>(node)) == 0) {
    return false;
  }
  const auto* asked = torch::autograd::get_current_graph_task_exec_info();
  if (asked == nullptr || asked->empty()) {
    return true;
  }
  auto found = asked->find(const_cast<Node*>(node));
  return found != asked->end() && found->second.should_execute();
}

void CompiledBackward::follow(torch::autograd::Edge eager) {
  if (!is_followed()) {
    compiled_ = next_edges_;
  }
  if (eager.function) {  // in the order of the engine it takes the place of the node that it leads to
    set_sequence_nr(eager.function->sequence_nr());
  }
  eager_ = eager;
  next_edges_ = {std::move(eager)};
}

variable_list CompiledBackward::apply(variable_list&& gradients) {
  if (is_followed()) {
    const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
    if (nodes == nullptr || nodes->count(eager_.function.get()) != 0) {
      return std::move(gradients);
    }
    next_edges_ = compiled_;  // this backward began before
    torch::autograd::Engine::get_default_engine().queue_callback([self = getptr()] {
      auto* node = static_cast<CompiledBackward*>(self.get());
      node->next_edges_ = {node->eager_};
    });
  }
  if (call_->program().single) {
    return call_->pass(*this, std::move(gradients));
  }
  const std::vector<int>& through = call_->program().through[place_];
  variable_list results(num_outputs() - through.size(), gradients.at(0));
  if (call_->arrive(place_, gradients.at(0)) && gradients.at(0).defined() && !through.empty()) {
    for (at::Tensor& gradient : call_->pass_by(place_, gradients.at(0))) {
      results.push_back(std::move(gradient));
    }
  }
  results.resize(num_outputs());
  return results;
}

CompiledCall::Gradients CompiledCall::pass(const Node& node, Gradients&& gradients) {
  std::size_t count = training_->requiring.size();
  Asked asked{std::move(gradients), Bits::all(1), Bits(count), Bits(training_->keepers.size()), !torch::autograd::get_current_graph_task_keep_graph()};
  const auto* some = torch::autograd::get_current_graph_task_exec_info();
  for (std::size_t i = 0; i < count; ++i) {
    if (some == nullptr || some->empty() || node.task_should_compute_output(i)) {
      asked.wanted.add(i);
    }
  }
  return compute(asked);
}

// The backward that runs, as far as this call is concerned; null outside of one.
std::shared_ptr<CompiledCall::Run> CompiledCall::run_here(bool make) {
  int task = torch::autograd::get_current_graph_task_id();
  if (task < 0) {
    return nullptr;
  }
  runs_.erase(std::remove_if(runs_.begin(), runs_.end(), [](const auto& one) { return one.second.expired(); }), runs_.end());
  for (const auto& [id, run] : runs_) {
    if (id == task) {
      return run.lock();
    }
  }
  if (!make) {
    return nullptr;
  }
  auto run = std::make_shared<Run>();
  run->gradients.resize(training_->differentiable.size());
  run->came.resize(training_->differentiable.size(), at::Tensor().unsafeGetTensorImpl());
  run->arrived = Bits(training_->differentiable.size());
  run->results.resize(training_->exits.size());
  run->using_up = Bits(training_->keepers.size());
  runs_.emplace_back(task, run);
  torch::autograd::Engine::get_default_engine().queue_callback([run] {});  // it lives as long as the task
  return run;
}

bool CompiledCall::arrive(int place, const at::Tensor& gradient) {
  std::lock_guard lock(runs_mutex_);
  auto run = run_here(true);
  if (run) {
    if (run->arrived.empty()) {
      run->cut = is_looked_at(place);
    }
    run->gradients[place] = gradient;
    run->came[place] = gradient.unsafeGetTensorImpl();
    run->arrived.add(static_cast<std::size_t>(place));
  }
  return run && run->cut;
}

// Of several exits the first that runs computes the gradients of all that the same backward comes to; gradients of outputs that have
// not arrived yet, which outputs made in another thread may bring about, leave the exits behind them for later.
CompiledCall::Gradients CompiledCall::leave(const Node& node, std::size_t number, Gradients&& gradients) {
  const std::vector<Exit>& exits = training_->exits;
  const Exit& exit = exits[number];
  std::size_t outputs = training_->differentiable.size();
  Asked asked{Gradients(outputs), Bits(outputs), Bits(training_->requiring.size()), Bits(training_->keepers.size()),
              !torch::autograd::get_current_graph_task_keep_graph()};
  std::shared_ptr<Run> run;
  std::vector<std::size_t> served{number};
  {
    std::lock_guard lock(runs_mutex_);
    run = run_here(false);
    Bits awaited(outputs);
    if (run) {
      bool same = true;
      for (std::size_t j = 0; j < exit.outputs.size(); ++j) {
        same = same && run->came[exit.outputs[j]] == gradients[j].unsafeGetTensorImpl();
      }
      if (auto& ready = run->results[number]; ready && same) {
        return *std::exchange(ready, std::nullopt);
      }
      asked.cut = run->cut ? run.get() : nullptr;
      asked.gradients = run->gradients;
      asked.gradients.resize(outputs);
      asked.arrived = run->arrived;
      asked.before = run->using_up;
      for (std::size_t k = 0; k < outputs; ++k) {
        if (!run->arrived.has(k) && is_executed(entries_[k])) {
          awaited.add(k);
        }
      }
    }
    for (std::size_t j = 0; j < exit.outputs.size(); ++j) {
      asked.gradients[exit.outputs[j]] = gradients[j];
      if (!run && gradients[j].defined()) {
        asked.arrived.add(static_cast<std::size_t>(exit.outputs[j]));
      }
    }
    auto add = [&](const Node& at, const Exit& one) {
      for (std::size_t j = 0; j < one.inputs.size(); ++j) {
        if (torch::autograd::get_current_graph_task_id() < 0 || at.task_should_compute_output(j)) {
          asked.wanted.add(static_cast<std::size_t>(one.inputs[j]));
        }
      }
    };
    add(node, exit);
    for (std::size_t i = 0; run && i < exits.size(); ++i) {
      auto comes = [&](int k) { return awaited.has(static_cast<std::size_t>(k)); };
      if (i != number && is_executed(exits_[i]) && std::none_of(exits[i].outputs.begin(), exits[i].outputs.end(), comes)) {
        add(*exits_[i], exits[i]);
        served.push_back(i);
      }
    }
    asked.last = asked.last && awaited.empty();
    if (run && awaited.empty()) {
      run->gradients.clear();
    }
  }
  gradients.clear();
  Bits arrived = asked.arrived;
  Gradients results = compute(asked);
  auto part = [&](const Exit& one) {
    Gradients some;
    for (int place : one.inputs) {
      some.push_back(std::move(results[place]));
    }
    return some;
  };
  Gradients own = part(exit);
  if (run) {
    Bits keepers = keepers_of(arrived, asked.wanted);
    std::lock_guard lock(runs_mutex_);
    run->using_up.add(keepers);
    for (std::size_t i = 1; i < served.size(); ++i) {
      run->results[served[i]] = part(exits[served[i]]);
    }
  }
  return own;
}

// Where the gradient of an input goes that is at `place` in `requiring`; none if nobody leads there any more.
torch::autograd::Edge CompiledCall::edge_to(std::size_t place) const {
  std::lock_guard lock(runs_mutex_);
  if (!places_.empty() && places_[place].function) {
    return places_[place];
  }
  if (training_->single) {
    auto node = entries_[0] != nullptr ? alive(const_cast<Node*>(entries_[0])) : CompiledBackward::Ref();
    return node && !static_cast<const CompiledBackward*>(entries_[0])->is_followed() ? node->next_edge(place) : torch::autograd::Edge();
  }
  for (std::size_t i = 0; i < exits_.size(); ++i) {
    const std::vector<int>& inputs = training_->exits[i].inputs;
    auto found = std::find(inputs.begin(), inputs.end(), static_cast<int>(place));
    if (found != inputs.end() && exits_[i] != nullptr) {
      auto node = alive(const_cast<Node*>(exits_[i]));
      return node ? node->next_edge(static_cast<std::size_t>(found - inputs.begin())) : torch::autograd::Edge();
    }
  }
  return {};
}

void CompiledCall::set_exit(std::size_t exit, const Node* node) {
  std::lock_guard lock(runs_mutex_);
  exits_[exit] = node;
}

void CompiledCall::set_entry(int place, const Node* node) {
  std::lock_guard lock(runs_mutex_);
  entries_[place] = node;
}

CompiledCall::Gradients CompiledCall::run_alone(Gradients gradients) {
  std::size_t outputs = gradients.size();
  Asked asked{std::move(gradients), Bits::all(outputs), Bits::all(training_->requiring.size()), Bits(training_->keepers.size()), false};
  return compute(asked);
}

}  // namespace dyncomp::executor
