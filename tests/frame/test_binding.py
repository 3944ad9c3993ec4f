"""Argument binding of the Dispatcher against plain Python calls, on random signatures and random calls."""

import inspect

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dyncomp._frame import _core

NAMES = [f"p{i}" for i in range(8)]


class Owner:
    pass


OWNER = Owner()


@st.composite
def signatures(draw):
    """Source of a function that returns all it was given."""
    positional_only = draw(st.integers(0, 2))
    positional = positional_only + draw(st.integers(0, 3))
    keyword_only = draw(st.integers(0, 3))
    defaults = draw(st.integers(0, positional))
    names = NAMES[: positional + keyword_only]
    parts = [
        name if i < positional - defaults else f"{name}='d{i}'" for i, name in enumerate(names[:positional])
    ]
    if positional_only:
        parts.insert(positional_only, "/")
    if draw(st.booleans()):
        parts.append("*rest")
        names = [*names, "rest"]
    elif keyword_only:
        parts.append("*")
    parts += [
        name if draw(st.booleans()) else f"{name}='k'"
        for name in NAMES[positional : positional + keyword_only]
    ]
    if draw(st.booleans()):
        parts.append("**others")
        names = [*names, "others"]
    return f"def function({', '.join(parts)}):\n    return ({''.join(f'{name}, ' for name in names)})"


def make(source):
    namespace = {}
    exec(source, namespace)
    return namespace["function"]


def outcome(function, args, kwargs):
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        return str(error)


calls = st.tuples(
    st.lists(st.integers(), max_size=6),
    st.dictionaries(st.sampled_from([*NAMES, "rest", "new"]), st.integers(), max_size=5),
)


def compile_function(func, args, owner, cache):
    """Compiles functions called `function` to what returns their argument slots."""
    if func.__name__ != "function":
        return None
    nodes = [(-1, "local", i, []) for i in range(len(args))]
    return _core.Entry(
        _core.GuardTree(nodes, list(range(len(args))), None), lambda *slots: slots, True, "all"
    )


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(signatures(), st.lists(calls, min_size=1, max_size=5))
def test_binds_as_python_does(compiler, source, calls):
    _core.set_callback(compile_function)
    function = make(source)
    fast = _core.Dispatcher(function, OWNER)
    for args, kwargs in calls:
        want = outcome(function, args, kwargs)
        assert outcome(fast, args, kwargs) == want, (source, args, kwargs)
    hooked = [outcome(function, args, kwargs) for args, kwargs in calls]
    with _core.Region(OWNER):
        inside = [outcome(function, args, kwargs) for args, kwargs in calls]
    assert inside == hooked


def test_keywords_that_are_not_plain_strings_go_to_python(compiler):
    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            return str.__eq__(self, other)

    def function(a, **others):
        return a, others

    _core.set_callback(compile_function)
    fast = _core.Dispatcher(function, OWNER)
    assert fast(**{Name("a"): 1, Name("b"): 2}) == (1, {"b": 2})
    assert fast(**{"".join(["", "a"]): 1}) == (1, {})


def test_star_arguments_are_fresh_at_every_call(compiler):
    def function(*rest, **others):
        return rest, others

    _core.set_callback(compile_function)
    fast = _core.Dispatcher(function, OWNER)
    given_dict = {"a": 1}
    _, others = fast(1, **given_dict)
    others["b"] = 2
    assert given_dict == {"a": 1} and fast(1, **given_dict) == ((1,), {"a": 1})


def test_more_parameters_than_the_small_buffers_hold(compiler):
    names = [f"a{i}" for i in range(60)]
    function = make(f"def function({', '.join(names)}, *, last=0):\n    return None")
    _core.set_callback(compile_function)
    fast = _core.Dispatcher(function, OWNER)
    assert fast(*range(60)) == (*range(60), 0)
    assert fast(**{name: i for i, name in enumerate(names)}, last=9) == (*range(60), 9)
    assert inspect.signature(fast) == inspect.signature(function)
