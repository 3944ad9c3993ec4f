// op: a boxed call of any registered operator, below autograd.
//
// Constants and defaults are converted once, in the schema's order. A call copies them onto the frame's stack and fills in
// what it alone knows: slots, registers, and lists that contain them.
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "executor/opcodes.h"
#include "executor/torch_values.h"
#include "executor/text.h"

namespace dyncomp::executor {

namespace {

struct SlotFill {
  std::size_t argument;
  int slot;
};

struct IntFill {
  std::size_t argument;
  int reg;
};

struct IntListFill {
  std::size_t argument;
  Ints values;
};

// Elements are slots, or `fixed` where the slot is -1 (a constant tensor, or None where the list allows it).
struct TensorListFill {
  std::size_t argument;
  bool optional;
  std::vector<int> slots;
  std::vector<at::Tensor> fixed;
};

struct Call {
  std::vector<c10::IValue> constants;  // one an argument; None where a fill follows
  std::vector<SlotFill> slots;
  std::vector<IntFill> ints;
  std::vector<IntListFill> int_lists;
  std::vector<TensorListFill> tensor_lists;
};

// Where a result goes: a slot (-1: dropped), a register, or for a list of tensors one slot an element.
struct Result {
  enum class Kind { kTensor, kTensors, kInt } kind;
  std::vector<int> targets;
};

c10::IValue tensor_list(const TensorListFill& fill, const Frame& frame) {
  if (fill.optional) {
    c10::List<std::optional<at::Tensor>> list;
    list.reserve(fill.slots.size());
    for (std::size_t i = 0; i < fill.slots.size(); ++i) {
      const at::Tensor& tensor = fill.slots[i] < 0 ? fill.fixed[i] : frame.slots[fill.slots[i]];
      list.push_back(tensor.defined() ? std::make_optional(tensor) : std::nullopt);
    }
    return list;
  }
  c10::List<at::Tensor> list;
  list.reserve(fill.slots.size());
  for (std::size_t i = 0; i < fill.slots.size(); ++i) {
    list.push_back(fill.slots[i] < 0 ? fill.fixed[i] : frame.slots[fill.slots[i]]);
  }
  return list;
}

class Op final : public Step {
 public:
  Op(c10::OperatorHandle op, Call call, std::vector<Result> results)
      : op_(std::move(op)), call_(std::move(call)), results_(std::move(results)) {}

  void run(Frame& frame) const override {
    auto& stack = frame.stack;
    stack.assign(call_.constants.begin(), call_.constants.end());
    for (const auto& fill : call_.slots) {
      stack[fill.argument] = frame.slots[fill.slot];
    }
    for (const auto& fill : call_.ints) {
      stack[fill.argument] = frame.registers[fill.reg];
    }
    for (const auto& fill : call_.int_lists) {
      Ints::Buffer buffer;
      stack[fill.argument] = c10::List<int64_t>(fill.values.get(frame, buffer));
    }
    for (const auto& fill : call_.tensor_lists) {
      stack[fill.argument] = tensor_list(fill, frame);
    }
    op_.callBoxed(stack);
    for (std::size_t i = 0; i < results_.size(); ++i) {
      take(frame, results_[i], stack[i]);
    }
    stack.clear();
  }

 private:
  void take(Frame& frame, const Result& result, c10::IValue& value) const {
    switch (result.kind) {
      case Result::Kind::kTensor:
        if (result.targets[0] >= 0) {
          frame.slots[result.targets[0]] = value.isNone() ? at::Tensor() : std::move(value).toTensor();
        }
        return;
      case Result::Kind::kInt:
        frame.registers[result.targets[0]] = value.isBool() ? value.toBool() : value.toInt();
        return;
      case Result::Kind::kTensors:
        take_list(frame, result.targets, std::move(value).toTensorVector());
    }
  }

  void take_list(Frame& frame, const std::vector<int>& targets, std::vector<at::Tensor> tensors) const {
    TORCH_CHECK(tensors.size() == targets.size(), "dyncomp: ", op_.operator_name(), " returned ", text(tensors.size()),
                " tensors where the plan has slots for ", text(targets.size()));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (targets[i] >= 0) {
        frame.slots[targets[i]] = std::move(tensors[i]);
      }
    }
  }

  c10::OperatorHandle op_;
  Call call_;
  std::vector<Result> results_;
};

// The element type of a list argument, through `Optional[...]`; null for anything else.
c10::TypePtr list_element(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) {
    return list_element(optional->getElementType());
  }
  auto list = type->cast<c10::ListType>();
  return list ? list->getElementType() : nullptr;
}

bool is_tensor_type(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) {
    return is_tensor_type(optional->getElementType());
  }
  return type->kind() == c10::TypeKind::TensorType;
}

bool is_number(PyObject* object) {
  return PyBool_Check(object) || PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object);
}

// A Python number where a tensor is expected: a 0-d tensor that weighs in type promotion as a number does.
at::Tensor wrapped_number(PyObject* object) {
  c10::Scalar scalar;
  if (PyBool_Check(object)) {
    scalar = object == Py_True;
  } else if (PyLong_Check(object)) {
    scalar = to_int64(object, "a number");
  } else if (PyFloat_Check(object)) {
    scalar = PyFloat_AS_DOUBLE(object);
  } else {
    scalar = c10::complex<double>(PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object));
  }
  at::Tensor tensor = c10::scalar_to_tensor(scalar);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

bool mentions(PyObject* list, bool (*what)(PyObject*)) {
  for (PyObject* item : items(list, "a list")) {
    if (what(item)) {
      return true;
    }
  }
  return false;
}

bool is_slot(PyObject* object) { return slot_index(object) >= 0; }

int checked_slot(Builder& builder, PyObject* object) {
  int64_t slot = slot_index(object);
  builder.readable(slot);
  return static_cast<int>(slot);
}

class CallBuilder {
 public:
  CallBuilder(Builder& builder, const c10::FunctionSchema& schema) : builder_(builder), schema_(schema) {
    call_.constants.resize(schema.arguments().size());
    given_.resize(schema.arguments().size());
  }

  void positional(PyObject* args) {
    std::size_t position = 0;
    for (PyObject* value : items(args, "args")) {
      if (position >= given_.size() || schema_.arguments()[position].kwarg_only()) {
        throw BuildError(name() + " takes " + std::to_string(position) + " positional arguments, got more");
      }
      place(position++, value);
    }
  }

  void keyword(PyObject* key, PyObject* value) {
    std::string keyword = to_text(key, "a keyword");
    auto position = schema_.argumentIndexWithName(keyword);
    if (!position) {
      throw BuildError(name() + " has no argument '" + keyword + "'");
    }
    if (given_[*position]) {
      throw BuildError(name() + " got '" + schema_.arguments()[*position].name() + "' twice");
    }
    place(*position, value);
  }

  Call finish() && {
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (given_[i]) {
        continue;
      }
      const auto& argument = schema_.arguments()[i];
      if (!argument.default_value()) {
        throw BuildError(name() + " misses argument '" + argument.name() + "'");
      }
      call_.constants[i] = *argument.default_value();
    }
    return std::move(call_);
  }

 private:
  std::string name() const { return c10::toString(schema_.operator_name()); }

  void place(std::size_t position, PyObject* value) {
    given_[position] = true;
    const auto& argument = schema_.arguments()[position];
    if (is_slot(value)) {
      if (!is_tensor_type(argument.type())) {
        throw BuildError(name() + ": argument '" + argument.name() + "' takes " + argument.type()->str() + ", not a tensor");
      }
      call_.slots.push_back({position, checked_slot(builder_, value)});
    } else if (is_register(value)) {
      call_.ints.push_back({position, to_int(builder_, value, "a register").reg});
    } else if (auto element = PyTuple_Check(value) || PyList_Check(value) ? list_element(argument.type()) : nullptr;
               element && (is_tensor_type(element) || mentions(value, is_register))) {
      place_list(position, value, element);
    } else if (is_number(value) && is_tensor_type(argument.type())) {
      call_.constants[position] = wrapped_number(value);
    } else {
      call_.constants[position] = to_ivalue(value, argument);
    }
  }

  void place_list(std::size_t position, PyObject* value, const c10::TypePtr& element) {
    if (!is_tensor_type(element)) {
      std::vector<Int> values;
      for (PyObject* item : items(value, "a list")) {
        values.push_back(to_int(builder_, item, "an element"));
      }
      call_.int_lists.push_back({position, Ints(values)});
      return;
    }
    TensorListFill fill{position, element->kind() == c10::TypeKind::OptionalType, {}, {}};
    c10::Argument one("element", element);
    for (PyObject* item : items(value, "a list")) {
      bool slot = is_slot(item);
      fill.slots.push_back(slot ? checked_slot(builder_, item) : -1);
      auto fixed = slot || item == Py_None ? c10::IValue() : to_ivalue(item, one);
      if (!slot && fixed.isNone() && !fill.optional) {
        throw BuildError(name() + ": argument '" + schema_.arguments()[position].name() + "' takes no None");
      }
      fill.fixed.push_back(fixed.isNone() ? at::Tensor() : fixed.toTensor());
    }
    call_.tensor_lists.push_back(std::move(fill));
  }

  Builder& builder_;
  const c10::FunctionSchema& schema_;
  Call call_;
  std::vector<bool> given_;
};

int result_slot(Builder& builder, PyObject* object) {
  return object == Py_None ? -1 : builder.define(to_int64(object, "a result"));
}

bool is_int_type(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::IntType || type->kind() == c10::TypeKind::SymIntType || type->kind() == c10::TypeKind::BoolType;
}

Result read_result(Builder& builder, const c10::TypePtr& type, PyObject* target) {
  if (target == Py_None) {
    return {Result::Kind::kTensor, {-1}};
  }
  if (is_tensor_type(type)) {
    return {Result::Kind::kTensor, {result_slot(builder, target)}};
  }
  if (is_int_type(type) && is_register(target)) {
    return {Result::Kind::kInt, {builder.define_register(to_int64(PyTuple_GET_ITEM(target, 1), "a register"))}};
  }
  auto element = list_element(type);
  if (!element || !is_tensor_type(element)) {
    throw BuildError("a result of type " + type->str() + " has no such place in a plan");
  }
  Result result{Result::Kind::kTensors, {}};
  for (PyObject* item : items(target, "slots of a list of tensors")) {
    result.targets.push_back(result_slot(builder, item));
  }
  return result;
}

std::vector<Result> read_results(Builder& builder, const c10::FunctionSchema& schema, PyObject* outs) {
  auto wanted = items(outs, "outs");
  const auto& returns = schema.returns();
  bool dropped = wanted.empty() || (wanted.size() == 1 && wanted[0] == Py_None);
  bool nested = wanted.size() == 1 && PyTuple_Check(wanted[0]);
  if (!dropped && !nested && returns.size() == 1 && list_element(returns[0].real_type())) {
    return {read_result(builder, returns[0].real_type(), outs)};  // a sole list may name its slots directly
  }
  if (wanted.size() > returns.size()) {
    throw BuildError(c10::toString(schema.operator_name()) + " returns " + std::to_string(returns.size()) + " values, not " +
                     std::to_string(wanted.size()));
  }
  std::vector<Result> results;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    results.push_back(read_result(builder, returns[i].real_type(), wanted[i]));
  }
  return results;
}

}  // namespace

StepPtr build_op(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 4);
  const auto& op = builder.ops[fields.index(builder.ops.size(), "op")];
  CallBuilder call(builder, op.schema());
  call.positional(fields.object());
  PyObject* kwargs = fields.object();
  if (PyDict_Check(kwargs)) {
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &key, &value);) {
      call.keyword(key, value);
    }
  } else {
    for (PyObject* pair : items(kwargs, "kwargs")) {
      auto parts = items(pair, "a keyword argument");
      if (parts.size() != 2) {
        throw BuildError("a keyword argument must be a pair");
      }
      call.keyword(parts[0], parts[1]);
    }
  }
  auto results = read_results(builder, op.schema(), fields.object());
  builder.program.heavy = true;
  return std::make_unique<Op>(op, std::move(call).finish(), std::move(results));
}

}  // namespace dyncomp::executor
