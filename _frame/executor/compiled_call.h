// One call of a compiled function that autograd goes through: what it keeps for its backwards, and what they have used up.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "executor/training.h"

namespace dyncomp::executor {

class CompiledCall : public std::enable_shared_from_this<CompiledCall> {
 public:
  using Gradients = torch::autograd::variable_list;

  explicit CompiledCall(TrainingPtr training)
      : training_(std::move(training)), used_(training_->keepers.size()), ended_(training_->differentiable.size()),
        exits_(training_->exits.size()), entries_(training_->differentiable.size()) {}

  // Keeps what backwards need. `values`: what the forward returned. Called once the outputs have their history.
  void keep(const Values& given, const std::vector<at::Tensor>& values, at::Tensor generator_state, std::vector<at::Tensor> originals);

  // ---- called by the nodes

  // The only output's gradient has come; the gradients of `requiring`.
  Gradients pass(const torch::autograd::Node& node, Gradients&& gradients);
  // The gradient of one of several outputs has come, in the graph task that runs. Whether it goes on by the results that it passes.
  bool arrive(int place, const at::Tensor& gradient);
  // The gradients of the results in `Training::through` for that of an output.
  Gradients pass_by(int place, const at::Tensor& gradient);
  // The gradients of an exit's inputs, for those of its outputs.
  Gradients leave(const torch::autograd::Node& node, std::size_t exit, Gradients&& gradients);
  // By position in `requiring` where inputs in `Training::viewed` were in the history before the call wrote them, or empty: gradients of
  // gradients may go there though no gradient does.
  void set_places(std::vector<torch::autograd::Edge> places) { places_ = std::move(places); }
  void set_exit(std::size_t exit, const torch::autograd::Node* node);
  void set_entry(int place, const torch::autograd::Node* node);
  void set_result(std::size_t end, const at::Tensor& tensor);
  // Where an end that is no plain raw output can be looked at: at the node of the view, or of the base where that was written. What passes
  // by the end keeps it.
  void set_gate(int end, const torch::autograd::Node* node);
  // No backward will come from this output any more.
  void end_output(int place);

  // ---- for who runs the backward in another way

  const Training& program() const { return *training_; }
  // A new tuple of what the backward is given before the gradients.
  py::tuple saved_objects();
  bool has_saved_hooks() const;
  // The nodes that a gradient of the output at `place` passes by in eager, where it may be looked at; the output's own must be alive.
  std::vector<const torch::autograd::Node*> passed_by(int place) const;
  // All gradients for those of the differentiable outputs, outside of any graph task.
  Gradients run_alone(Gradients gradients);
  // A backward from these outputs to these inputs has run, and its graph is not retained.
  void release(const Bits& outputs, const Bits& inputs);

 private:
  // A backward that goes through this call.
  struct Run {
    Gradients gradients;  // by differentiable output, until no other is to come
    std::vector<const void*> came;  // the same, to compare with
    Bits arrived;
    std::vector<std::optional<Gradients>> results;  // by exit, until it is asked
    Bits using_up;        // the keepers that it goes through
    bool cut = false;     // a result on the way is looked at, so gradients go from one to the other
    SharedObject to_results, to_inputs;  // then, once they are made
  };
  // What a backward is asked for.
  struct Asked {
    Gradients gradients;  // by differentiable output
    Bits arrived;         // outputs whose nodes have run
    Bits wanted;          // positions in `requiring`
    Bits before;          // the keepers that the same backward has used up
    bool last;            // nothing is kept for another backward
    Run* cut = nullptr;   // the backward, where it goes from result to result
  };

  // While what is kept is read, nothing of it is freed.
  struct Reading {
    CompiledCall& call;
    explicit Reading(CompiledCall& call) : call(call) { ++call.reading_; }
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
  };

  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::shared_ptr<Run> run_here(bool make);
  bool is_looked_at(int place) const;
  void open_cut(Run& run);
  Gradients through_cut(const Asked& asked);
  Gradients compute(Asked& asked);
  Gradients run(Asked& asked, const std::vector<bool>& pattern, const Bits& keepers);
  Gradients rerun(const Asked& asked, bool create_graph);
  // The inputs of a call that runs again; where one is gone or was written, zeros with its place in the history, at an index in `missing`.
  // After them, for each in `Training::viewed`, the same with the place of its base, and with that of its node after the call.
  std::vector<at::Tensor> inputs_again(std::vector<int>& missing) const;
  torch::autograd::Edge edge_to(std::size_t place) const;
  at::Tensor input_now(std::size_t index) const;
  at::Tensor as_saved(std::size_t number) const;
  py::object kept_for_rerun(const std::vector<int>& missing);
  // The results go on to eager's graph, once the backward that runs has ended.
  void follow(const py::tuple& ends, const py::object& close);
  void adopt_views(const std::vector<std::pair<Weak, torch::autograd::Edge>>& views) const;
  Gradients spread(PyObject* results) const;
  const Backward* prepare(const std::vector<bool>& pattern, Bits wanted, const Gradients& gradients) const;
  bool covers_all(const std::vector<bool>& pattern, const Bits& wanted) const;
  Bits keepers_of(const Bits& outputs, const Bits& inputs) const;
  void check_unused(const Bits& keepers, const Bits& before) const;
  void check_versions(const Bits& arrived, const Bits& wanted) const;
  std::optional<uint32_t> version_now(std::size_t seen) const;
  std::string origin_of(const Watched& kept) const;
  void use_up(const Bits& keepers);
  void free_what_nothing_needs();
  bool is_spent() const;
  bool holds_all() const;
  std::vector<bool> unneeded() const;
  std::optional<Values> unpack_saved(const Backward& backward);
  Values with_numbers(std::vector<at::Tensor> tensors) const;

  TrainingPtr training_;
  // Guarded by the interpreter's lock.
  std::vector<torch::autograd::SavedVariable> saved_;
  std::vector<bool> gone_;           // by saved value: nothing needs it any more
  // For a backward that is itself differentiated: those that it cannot do without, and all as long as somebody else has them.
  std::vector<at::Tensor> inputs_;
  std::vector<std::optional<Weak>> seen_;
  std::vector<torch::autograd::Edge> places_;
  std::vector<at::Tensor> originals_;  // as before the call, where it writes them and running it again needs that; or empty
  std::vector<PlacedNumber> numbers_;  // those among the inputs
  std::vector<uint32_t> versions_;
  struct Version {
    c10::VariableVersion counter;  // only where the plan says so
    uint32_t version;
    std::vector<int64_t> sizes;
  };
  std::vector<Version> seen_versions_;  // by `Training::seen`
  at::Tensor generator_state_;
  // In eager each operation gives up what it keeps when a backward has gone through it, so what one backward was not asked for may
  // still be there for another.
  Bits used_;   // keepers
  Bits ended_;  // outputs that no backward can come from any more
  int reading_ = 0;  // how many are unpacking what is kept: nothing is freed meanwhile
  bool kept_ = false, free_later_ = false, spent_ = false;

  mutable std::mutex runs_mutex_;
  std::vector<const torch::autograd::Node*> exits_, entries_;  // the nodes; null where there is none any more
  std::vector<std::optional<Weak>> results_;  // by end, what the user has
  std::vector<const torch::autograd::Node*> gates_;  // by end, see `set_gate`; empty where all ends are plain
  std::vector<std::pair<int, std::weak_ptr<Run>>> runs_;       // by graph task, which owns them
};

}  // namespace dyncomp::executor
