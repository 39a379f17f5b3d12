"""Loops, branches and calls."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kalvi.numerics.interpreter import shapes
from kalvi.numerics.interpreter.writer import Value, Writer, dtype_of, held_plain, rule

CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "remat2": "jaxpr",
}
"""The parameter of a call that holds the called program."""


@rule(*CALLS, takes_entries=True)
def _call(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    inner = equation.params[CALLS[equation.primitive.name]]
    closed = hasattr(inner, "consts")
    return writer.inline(inner.jaxpr if closed else inner, inner.consts if closed else (), operands)


@rule("custom_linear_solve", takes_entries=True)
def _linear_solve(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    lengths, solve = equation.params["const_lengths"], equation.params["jaxprs"].solve
    before = lengths.matvec + lengths.vecmat
    constants = operands[before : before + lengths.solve]
    right = operands[sum(lengths) :]
    return writer.inline(solve.jaxpr, solve.consts, [*constants, *right])


@rule("optimization_barrier", "device_put", takes_entries=True)
def _same(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    """The operands unchanged: operations for devices and compilers do nothing here."""
    return operands


@rule("platform_index")
def _platform(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    """The index of the branch for this platform, the CPU."""
    platforms = equation.params["platforms"]
    found = next(i for i, names in enumerate(platforms) if names is None or "cpu" in names)
    return [writer.literal(found, np.int32)]


@rule("cond", takes_entries=True)
def _cond(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    which, *args = operands
    branches = equation.params["branches"]
    if which.known is not None:
        branch = branches[max(min(int(which.known), len(branches) - 1), 0)]
        return writer.inline(branch.jaxpr, branch.consts, args)
    chosen = [_named(writer, variable, writer.depth) for variable in equation.outvars]
    for i, branch in enumerate(branches):
        writer.put_block(
            _branch_header(which.text, i, len(branches)), _body(writer, branch, args, chosen)
        )
    return chosen


def _body(writer: Writer, branch: Any, args: list[Value], chosen: list[Value]) -> list[str]:
    """The lines of a branch."""

    def write() -> None:
        results = writer.inline(branch.jaxpr, branch.consts, args)
        for value, result in zip(chosen, results, strict=True):
            writer.put(f"{value.text} = {writer.plain(result).text}")

    return writer.inside(write, pinned=True)[0]


def _branch_header(which: str, i: int, n: int) -> str:
    """The line before branch i of n; an index out of range means the first or the last branch."""
    if i == n - 1:
        return "else:" if n > 1 else "if True:"
    return f"{'elif' if i else 'if'} {which} <= {i}:"


# loops ---------------------------------------------------------------------------------------------


def _named(writer: Writer, variable: Any, depth: int, name: str = "") -> Value:
    """A value that lines assign to by its name: a number if it has one entry, otherwise an array."""
    shape = tuple(variable.aval.shape)
    return Value(name or writer.name(), shape, dtype_of(variable.aval), held_plain(shape), depth)


def _carried(writer: Writer, variables: Sequence[Any], start: Sequence[Value]) -> list[Value]:
    """Names for the values that a loop carries, with their first values."""
    carried = []
    for variable, value in zip(variables, start, strict=True):
        name = _named(writer, variable, writer.depth + 1)
        writer.put(f"{name.text} = {writer.plain(value).text}")
        carried.append(name)
    return carried


def _carry_on(writer: Writer, carried: list[Value], results: Sequence[Value]) -> None:
    """Assign the next values to the names that a loop carries, all at once."""
    pairs = [
        (old.text, new.text)
        for old, new in zip(carried, map(writer.plain, results), strict=True)
        if old.text != new.text
    ]
    if pairs:
        names, texts = ("".join(f"{part}, " for part in side) for side in zip(*pairs, strict=True))
        writer.put(f"{names}= {texts}")  # a tuple even for one name, which has several values


def _after(writer: Writer, carried: list[Value]) -> list[Value]:
    return [replace(value, depth=writer.depth) for value in carried]


@rule("scan", takes_entries=True)
def _scan(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    given, closed = equation.params, equation.params["jaxpr"]
    n_consts, n_carry, length = given["num_consts"], given["num_carry"], given["length"]
    consts, start = operands[:n_consts], operands[n_consts : n_consts + n_carry]
    xs = operands[n_consts + n_carry :]
    if length == 1:
        return _single_step(writer, equation, [*consts, *start], xs)
    body, xs = closed.jaxpr, [writer.whole(value) for value in xs]
    carried = _carried(writer, body.invars[n_consts : n_consts + n_carry], start)
    stacks = [_stack(writer, variable) for variable in equation.outvars[n_carry:]]
    depth, counter = writer.depth + 1, writer.name()
    rows = [_named(writer, variable, depth) for variable in body.invars[n_consts + n_carry :]]

    def write() -> None:
        results = writer.inline(body, closed.consts, [*consts, *carried, *rows])
        for stack, result in zip(stacks, map(writer.array, results[n_carry:]), strict=True):
            writer.put(f"{stack.text}[{counter}] = {result.text}")
        _carry_on(writer, carried, results[:n_carry])

    lines, _ = writer.inside(write, pinned=False)
    steps = f"range({length - 1}, -1, -1)" if given["reverse"] else f"range({length})"
    if rows:
        sources = ", ".join(
            _items(x, row, given["reverse"]) for x, row in zip(xs, rows, strict=True)
        )
        names = ", ".join([counter, *(row.text for row in rows)])
        writer.put_block(f"for {names} in zip({steps}, {sources}):", lines)
    else:
        writer.put_block(f"for {counter} in {steps}:", lines)
    return [*_after(writer, carried), *stacks]


def _single_step(
    writer: Writer, equation: Any, before: list[Value], xs: list[Value]
) -> list[Value]:
    """A loop of one step, written without a loop."""
    closed, n_carry = equation.params["jaxpr"], equation.params["num_carry"]
    rows = [shapes.first(writer, value) for value in xs]
    results = writer.inline(closed.jaxpr, closed.consts, [*before, *rows])
    stacked = [shapes.with_first_axis(writer, value) for value in results[n_carry:]]
    return [*results[:n_carry], *stacked]


def _items(x: Value, row: Value, backwards: bool) -> str:
    """The text that a loop iterates over for its rows; numbers are Python numbers."""
    turn = "[::-1]" if backwards else ""
    return f"{x.text}{turn}.ravel().tolist()" if row.is_number else f"{x.text}{turn}"


def _stack(writer: Writer, variable: Any) -> Value:
    """An unfilled array with a row for each step of a loop."""
    shape, dtype = tuple(variable.aval.shape), dtype_of(variable.aval)
    name = writer.name()
    writer.put(f"{name} = np.empty({shape}, {writer.helper(dtype)})")
    return Value(name, shape, dtype, shape, writer.depth)


@rule("while", takes_entries=True)
def _while(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    given = equation.params
    cond, body = given["cond_jaxpr"], given["body_jaxpr"]
    n_cond, n_body = given["cond_nconsts"], given["body_nconsts"]
    cond_consts, body_consts = operands[:n_cond], operands[n_cond : n_cond + n_body]
    carried = _carried(writer, body.jaxpr.invars[n_body:], operands[n_cond + n_body :])

    def write() -> None:
        (going,) = writer.inline(cond.jaxpr, cond.consts, [*cond_consts, *carried])
        going = writer.whole(going)
        writer.put(f"if not {going.text}{'.any()' if going.shape else ''}:")
        writer.put("    break")
        results = writer.inline(body.jaxpr, body.consts, [*body_consts, *carried])
        if going.shape:
            results = [_where(writer, going, *pair) for pair in zip(results, carried, strict=True)]
        _carry_on(writer, carried, results)

    lines, _ = writer.inside(write, pinned=False)
    writer.put_block("while True:", lines)
    return _after(writer, carried)


def _where(writer: Writer, going: Value, new: Value, old: Value) -> Value:
    """The new rows of the parallel loops that continue, and the old rows of those that have ended."""
    shape = going.shape + (1,) * (len(new.shape) - len(going.shape))
    new, old = writer.whole(new), writer.whole(old)
    text = f"np.where({going.text}.reshape({shape}), {new.text}, {old.text})"
    return writer.set(text, new.shape, new.dtype, [going, new, old])
