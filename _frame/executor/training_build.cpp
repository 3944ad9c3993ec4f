// A training plan from the plain data that Python hands over; mistakes are ValueErrors.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include <torch/csrc/utils/pybind.h>

#include "executor/torch_values.h"
#include "executor/training_parts.h"

namespace dyncomp::executor {

namespace {

// A size, stride or offset: an int, or ("raw", k) for the number that is raw output k.
int64_t read_number(py::handle number, std::vector<int>& from) {
  if (!py::isinstance<py::tuple>(number)) {
    from.push_back(-1);
    return number.cast<int64_t>();
  }
  auto [kind, index] = number.cast<std::pair<std::string, int>>();
  if (kind != "raw") {
    throw py::value_error("a number of a view must be an int or (\"raw\", k), not " + kind);
  }
  from.push_back(index);
  return 0;
}

// An argument of a view as plain data; numbers that vary, ("raw", k) alone or in a list, are noted and 1 stands in for them.
py::object without_numbers(py::handle given, int argument, std::vector<ViewCall::Number>& numbers) {
  auto raw = [](py::handle value) {
    if (!py::isinstance<py::tuple>(value)) {
      return -1;
    }
    py::tuple pair = py::reinterpret_borrow<py::tuple>(value);
    bool named = pair.size() == 2 && py::isinstance<py::str>(pair[0]) && pair[0].cast<std::string>() == "raw";
    return named ? pair[1].cast<int>() : -1;
  };
  if (int place = raw(given); place >= 0) {
    numbers.push_back({argument, -1, place});
    return py::int_(1);
  }
  if (!py::isinstance<py::list>(given) && !py::isinstance<py::tuple>(given)) {
    return py::reinterpret_borrow<py::object>(given);
  }
  py::list items;
  for (py::handle item : given) {
    int place = raw(item);
    if (place >= 0) {
      numbers.push_back({argument, static_cast<int>(items.size()), place});
      items.append(1);
    } else {
      items.append(item);
    }
  }
  return items;
}

// (operator, overload, arguments after the base, which of several results or None).
ViewCall read_call(const py::tuple& given) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow(given[0].cast<std::string>().c_str(), given[1].cast<std::string>().c_str());
  ViewCall call{op, {}, given[3].is_none() ? -1 : given[3].cast<int>(), {}};
  py::tuple rest = given[2].cast<py::tuple>();
  const auto& arguments = op.schema().arguments();
  if (arguments.empty() || rest.size() >= arguments.size()) {
    throw py::value_error("too many arguments for the view " + op.schema().name());
  }
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (i <= rest.size()) {
      py::object argument = without_numbers(rest[i - 1], static_cast<int>(i) - 1, call.numbers);
      call.rest.push_back(to_ivalue(argument.ptr(), arguments[i]));
    } else if (arguments[i].default_value()) {
      call.rest.push_back(*arguments[i].default_value());
    } else {
      throw py::value_error("a missing argument of the view " + op.schema().name());
    }
  }
  return call;
}

TrainingOutput read_output(const py::tuple& rule) {
  using Kind = TrainingOutput::Kind;
  TrainingOutput output{Kind::kConst};
  std::string kind = rule[0].cast<std::string>();
  if (kind == "view") {
    py::tuple base = rule[1].cast<py::tuple>();
    std::string of = base[0].cast<std::string>();
    output.kind = of == "raw" ? Kind::kRawView : of == "output" ? Kind::kOutputView : Kind::kInputView;
    output.index = base[1].cast<int>();
    for (py::handle size : rule[2].cast<py::sequence>()) {
      output.sizes.push_back(read_number(size, output.from));
    }
    for (py::handle stride : rule[3].cast<py::sequence>()) {
      output.strides.push_back(read_number(stride, output.from));
    }
    if (output.sizes.size() != output.strides.size()) {
      throw py::value_error("a view has as many sizes as strides");
    }
    output.offset = read_number(rule[4], output.from);
    if (std::all_of(output.from.begin(), output.from.end(), [](int index) { return index < 0; })) {
      output.from.clear();
    }
    output.differentiable = rule[5].cast<bool>();
    for (py::handle call : rule[6].cast<py::tuple>()) {
      output.calls.push_back(read_call(call.cast<py::tuple>()));
    }
    output.stale = rule[7].cast<bool>();
    output.first = rule[8].is_none() ? -1 : rule[8].cast<int>();
    if (output.first >= 0 && (output.calls.empty() || output.calls.back().item < 0)) {
      throw py::value_error("a view that is one of several results of a call names the call and which it is");
    }
  } else if (kind == "const") {
    output.value = py::object(rule[1]).ptr();
  } else {
    output.kind = kind == "raw" ? Kind::kRaw : kind == "input" ? Kind::kInput : Kind::kOutput;
    output.index = rule[1].cast<int>();
  }
  return output;
}

// The number in a rule's reach, or ValueError.
void check_index(int index, std::size_t limit, const char* what) {
  if (index < 0 || static_cast<std::size_t>(index) >= limit) {
    throw py::value_error(std::string("a training plan has no ") + what + " " + std::to_string(index));
  }
}

void check_view(const Training& training, int output) {
  using Kind = TrainingOutput::Kind;
  Kind kind = training.outputs[output].kind;
  if (kind != Kind::kRawView && kind != Kind::kInputView && kind != Kind::kOutputView) {
    throw py::value_error("output " + std::to_string(output) + " of a training plan is no view");
  }
}

void check(const Training& training, int values) {
  for (int index : training.requiring) {
    check_index(index, training.inputs, "input");
  }
  for (int index : training.differentiable) {
    check_index(index, training.raw, "raw output");
  }
  for (const Seen& one : training.seen) {
    check_index(one.index, one.input ? training.inputs : training.raw, one.input ? "input" : "raw output");
  }
  for (int index : training.viewed) {
    check_index(index, training.inputs, "input");
  }
  if (training.sides.size() != training.requiring.size()) {
    throw py::value_error("a training plan knows of each gradient of an input where it goes");
  }
  for (int place : training.leaf_order) {
    check_index(place, training.requiring.size(), "input with a gradient");
  }
  if (training.likely.size() != training.differentiable.size()) {
    throw py::value_error("a training plan knows of each differentiable output whether it is likely to get a gradient");
  }
  if (training.reach.size() != training.differentiable.size() || training.output_order.size() < training.differentiable.size()) {
    throw py::value_error("a training plan knows of each differentiable output which inputs it leads to, and when it was made");
  }
  for (int end : training.output_order) {
    check_index(end, training.through.size(), "end of a history");
    if (auto place = static_cast<std::size_t>(end); place >= training.differentiable.size() && training.shown[place - training.differentiable.size()].input) {
      throw py::value_error("inputs are not made by a training plan");
    }
  }
  check_index(static_cast<int>(training.returned), training.outputs.size() + 1, "output");
  if (training.readers.size() != training.saved.size() || training.last_needs.size() != training.saved.size()) {
    throw py::value_error("a training plan knows of each saved value who reads it");
  }
  for (const SavedValue& one : training.saved) {
    check_index(one.index, one.input ? training.inputs : values, one.input ? "input" : "value");
  }
  for (const Shown& one : training.shown) {
    check_index(one.index, one.input ? training.inputs : training.outputs.size(), one.input ? "input" : "output");
    if (!one.input) {
      check_view(training, one.index);
    }
  }
  for (std::size_t i = 0; i < training.outputs.size(); ++i) {
    const TrainingOutput& rule = training.outputs[i];
    using Kind = TrainingOutput::Kind;
    if (rule.kind == Kind::kRaw || rule.kind == Kind::kRawView) {
      check_index(rule.index, training.raw, "raw output");
    } else if (rule.kind == Kind::kInput || rule.kind == Kind::kInputView) {
      check_index(rule.index, training.inputs, "input");
    } else if (rule.kind == Kind::kOutput) {
      check_index(rule.index, i, "earlier output");
    } else if (rule.kind == Kind::kOutputView) {
      check_index(rule.index, training.outputs.size(), "output");
      check_view(training, rule.index);
    }
    for (int index : rule.from) {
      if (index >= 0) {
        check_index(index, training.raw, "raw output");
      }
    }
    for (const ViewCall& call : rule.calls) {
      for (const ViewCall::Number& number : call.numbers) {
        check_index(number.raw, training.raw, "raw output");
      }
    }
  }
}

std::vector<Side> read_sides(PyObject* given) {
  std::vector<Side> sides;
  for (const std::string& name : py::cast<std::vector<std::string>>(py::handle(given))) {
    if (name != "own" && name != "base" && name != "after") {
      throw py::value_error("the gradient of an input goes to its \"own\" node, its \"base\" or its node \"after\" the call, not to " + name);
    }
    sides.push_back(name == "own" ? Side::kOwn : name == "base" ? Side::kBase : Side::kAfter);
  }
  return sides;
}

Bits read_bits(py::handle bytes, std::size_t count) { return Bits::from(py::cast<std::string>(bytes), count); }

// Pairs of (differentiable outputs, positions in `requiring`).
std::vector<Keeper> read_keepers(PyObject* given, const Training& training) {
  std::vector<Keeper> keepers;
  for (py::handle one : py::reinterpret_borrow<py::sequence>(given)) {
    py::tuple pair = py::cast<py::tuple>(one);
    keepers.push_back({read_bits(pair[0], training.differentiable.size()), read_bits(pair[1], training.requiring.size())});
  }
  return keepers;
}

// ("input" | "raw", index, sizes | None, type, outputs, inputs, origin, itself).
void read_watched(const py::tuple& parts, Training& training) {
  bool input = parts[0].cast<std::string>() == "input";
  int index = parts[1].cast<int>();
  bool sized = parts[2].is_none();
  bool saved = std::any_of(training.saved.begin(), training.saved.end(), [&](const SavedValue& one) { return input && one.input && one.index == index; });
  std::size_t number = 0;
  while (number < training.seen.size() && (training.seen[number].input != input || training.seen[number].index != index)) {
    ++number;
  }
  if (number == training.seen.size()) {
    training.seen.push_back({input, index, !saved, false});
  }
  training.seen[number].sized = training.seen[number].sized || sized;
  training.watched.push_back({static_cast<int>(number),
                              {read_bits(parts[4], training.differentiable.size()), read_bits(parts[5], training.requiring.size())},
                              sized ? std::vector<int64_t>() : parts[2].cast<std::vector<int64_t>>(), parts[3].cast<std::string>(),
                              parts[6].cast<std::string>(), parts[7].cast<bool>()});
}

// The inputs by the outputs that lead to them; what the likely backward comes to first is first.
std::vector<Exit> exits_of(const Training& training) {
  std::vector<int> order = training.leaf_order;
  for (std::size_t place = 0; place < training.requiring.size(); ++place) {
    if (std::find(order.begin(), order.end(), static_cast<int>(place)) == order.end()) {
      order.push_back(static_cast<int>(place));
    }
  }
  std::vector<Exit> exits;
  std::map<std::vector<int>, std::size_t> numbers;
  for (int place : order) {
    std::vector<int> outputs;
    for (std::size_t k = 0; k < training.reach.size(); ++k) {
      if (training.reach[k].has(static_cast<std::size_t>(place))) {
        outputs.push_back(static_cast<int>(k));
      }
    }
    if (outputs.empty()) {
      continue;
    }
    auto [found, fresh] = numbers.try_emplace(outputs, exits.size());
    if (fresh) {
      exits.push_back({{}, outputs});
    }
    exits[found->second].inputs.push_back(place);
  }
  return exits;
}

}  // namespace

TrainingPtr read_training(PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"forward", "original", "prepare", "rerun", "inputs", "raw", "values", "requiring", "differentiable",
                                "saved", "written", "outputs", "draws", "rebased", "repeatable", "watched", "likely", "leaf_order", "reach", "output_order", "keepers",
                                "readers", "last_needs", "sized", "held", "originals", "returned", "sides", "viewed", "through", "shown", "depth", "cut", "for_views", nullptr};
  PyObject *forward, *original, *prepare, *rerun, *requiring, *differentiable, *saved, *written, *outputs, *rebased, *watched, *likely, *leaf_order;
  PyObject *reach, *output_order, *keepers, *readers, *last_needs, *held, *originals, *sides, *viewed, *through, *shown, *cut, *for_views;
  int inputs, raw, values, draws, repeatable, sized, depth, returned;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OOOOiiiOOOOOpOpOOOOOOOOpOOiOOOOiOO:TrainingPlan", const_cast<char**>(names), &forward, &original, &prepare, &rerun,
                                   &inputs, &raw, &values, &requiring, &differentiable, &saved, &written, &outputs, &draws, &rebased,
                                   &repeatable, &watched, &likely, &leaf_order, &reach, &output_order, &keepers, &readers, &last_needs, &sized, &held, &originals, &returned, &sides, &viewed, &through, &shown, &depth, &cut, &for_views)) {
    throw py::error_already_set();
  }
  auto training = std::make_shared<Training>();
  training->inputs = inputs;
  training->raw = raw;
  training->draws = draws != 0;
  training->repeatable = repeatable != 0;
  training->sized = sized != 0;
  training->depth = static_cast<uint64_t>(depth);
  training->sides = read_sides(sides);
  training->viewed = py::cast<std::vector<int>>(py::handle(viewed));
  training->likely = py::cast<std::vector<bool>>(py::handle(likely));
  training->leaf_order = py::cast<std::vector<int>>(py::handle(leaf_order));
  training->requiring = py::cast<std::vector<int>>(py::handle(requiring));
  training->differentiable = py::cast<std::vector<int>>(py::handle(differentiable));
  for (py::handle one : py::reinterpret_borrow<py::sequence>(reach)) {
    training->reach.push_back(read_bits(one, training->requiring.size()));
  }
  training->output_order = py::cast<std::vector<int>>(py::handle(output_order));
  training->through = py::cast<std::vector<std::vector<int>>>(py::handle(through));
  for (const auto& [kind, index, item] : py::cast<std::vector<std::tuple<std::string, int, int>>>(py::handle(shown))) {
    training->shown.push_back({kind == "input", index, item});
  }
  training->through.resize(training->differentiable.size() + training->shown.size());
  for (const std::vector<int>& others : training->through) {
    for (int other : others) {
      check_index(other, training->through.size(), "end of a history");
    }
  }
  training->single = training->differentiable.size() == 1 && training->through[0].empty();
  training->keepers = read_keepers(keepers, *training);
  for (py::handle one : py::reinterpret_borrow<py::sequence>(readers)) {
    training->readers.push_back(read_keepers(one.ptr(), *training));
  }
  training->last_needs = py::cast<std::vector<bool>>(py::handle(last_needs));
  for (const auto& [kind, index] : py::cast<std::vector<std::pair<std::string, int>>>(py::handle(saved))) {
    training->saved.push_back({kind == "input", index});
  }
  training->written.resize(static_cast<std::size_t>(inputs));
  for (int index : py::cast<std::vector<int>>(py::handle(written))) {
    check_index(index, training->written.size(), "input");
    training->written[index] = training->writes = true;
  }
  for (py::handle one : py::reinterpret_borrow<py::sequence>(watched)) {
    read_watched(py::cast<py::tuple>(one), *training);
  }
  training->held.resize(static_cast<std::size_t>(inputs));
  for (int index : py::cast<std::vector<int>>(py::handle(held))) {
    check_index(index, training->held.size(), "input");
    training->held[index] = true;
  }
  training->originals.resize(static_cast<std::size_t>(inputs));
  for (int index : py::cast<std::vector<int>>(py::handle(originals))) {
    check_index(index, training->originals.size(), "input");
    training->originals[index] = training->copies = true;
  }
  training->rebased.resize(static_cast<std::size_t>(raw), -1);
  training->moved.resize(static_cast<std::size_t>(inputs));
  training->times.resize(static_cast<std::size_t>(inputs), 1);
  training->itself.resize(static_cast<std::size_t>(inputs), Itself::kLast);
  for (py::handle one : py::reinterpret_borrow<py::sequence>(rebased)) {  // (input, raw output, how often it is written, when through itself)
    py::tuple parts = py::cast<py::tuple>(one);
    int input = parts[0].cast<int>(), value = parts[1].cast<int>();
    check_index(input, training->written.size(), "input");
    check_index(value, training->rebased.size(), "raw output");
    training->rebased[value] = input;
    training->times[input] = parts.size() > 2 ? parts[2].cast<uint32_t>() : 1;
    std::string itself = parts.size() > 3 ? parts[3].cast<std::string>() : "last";
    training->itself[input] = itself == "never" ? Itself::kNever : itself == "earlier" ? Itself::kEarlier : Itself::kLast;
    training->moved[input] = training->rebases = true;
  }
  py::tuple rules = py::tuple(py::reinterpret_borrow<py::object>(outputs));
  for (py::handle rule : rules) {
    training->outputs.push_back(read_output(rule.cast<py::tuple>()));
  }
  training->returned = static_cast<std::size_t>(returned);
  training->kept = SharedObject(rules.ptr());
  training->forward = SharedObject(forward);
  training->original = SharedObject(original);
  training->prepare = SharedObject(prepare);
  training->rerun = SharedObject(rerun);
  training->cut = SharedObject(cut);
  training->for_views = SharedObject(for_views);
  for (std::size_t i = 0; i < training->written.size(); ++i) {
    auto found = std::find(training->requiring.begin(), training->requiring.end(), static_cast<int>(i));
    if (training->written[i] && (training->moved[i] || found != training->requiring.end())) {
      training->may_be_viewed.push_back(static_cast<int>(i));
    }
  }
  check(*training, values);
  training->exits = exits_of(*training);
  return training;
}

}  // namespace dyncomp::executor
