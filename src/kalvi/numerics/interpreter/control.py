"""Loops, branches and calls."""

from collections.abc import Sequence
from typing import Any

from kalvi.numerics.interpreter.writer import Shape, Value, Writer, dtype_of, indented, rule

CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}


@rule(*CALLS)
def _call(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    inner = equation.params[CALLS[equation.primitive.name]]
    closed = hasattr(inner, "consts")
    return writer.inline(inner.jaxpr if closed else inner, inner.consts if closed else (), operands)


@rule("custom_linear_solve")
def _linear_solve(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    lengths, solve = equation.params["const_lengths"], equation.params["jaxprs"].solve
    before = lengths.matvec + lengths.vecmat
    constants = operands[before : before + lengths.solve]
    right = operands[sum(lengths) :]
    return writer.inline(solve.jaxpr, solve.consts, [*constants, *right])


def _carried(writer: Writer, variables: Sequence[Any], start: Sequence[Value]) -> list[Value]:
    """Names for what a loop carries on, with the first values."""
    carried = []
    for variable, value in zip(variables, start, strict=True):
        whole, name = writer.whole(value), writer.name()
        writer.put(f"{name} = {whole.text}")
        shape = tuple(variable.aval.shape)
        carried.append(Value(name, shape, dtype_of(variable.aval), shape, writer.depth + 1))
    return carried


def _carry_on(writer: Writer, carried: list[Value], results: Sequence[Value]) -> None:
    """Give the names that a loop carries on their next values."""
    new = [writer.whole(result) for result in results]
    pairs = [
        (old.text, value.text)
        for old, value in zip(carried, new, strict=True)
        if old.text != value.text
    ]
    if pairs:
        names, texts = ("".join(f"{part}, " for part in side) for side in zip(*pairs, strict=True))
        writer.put(f"{names}= {texts}")  # a tuple even of one: not the only value of its name


def _after(writer: Writer, carried: list[Value]) -> list[Value]:
    return [
        Value(value.text, value.shape, value.dtype, value.held, writer.depth) for value in carried
    ]


@rule("scan")
def _scan(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    given, body = equation.params, equation.params["jaxpr"].jaxpr
    n_consts, n_carry, length = given["num_consts"], given["num_carry"], given["length"]
    consts, start, xs = (
        operands[:n_consts],
        operands[n_consts : n_consts + n_carry],
        [writer.whole(value) for value in operands[n_consts + n_carry :]],
    )
    carried = _carried(writer, body.invars[n_consts : n_consts + n_carry], start)
    outvars = body.outvars[n_carry:]
    kept = [_stack(writer, outvar, length) for outvar in outvars]
    counter, items = writer.name(), [writer.name() for _ in xs]

    def write() -> None:
        depth = writer.depth
        rows = [
            Value(item, tuple(v.aval.shape), dtype_of(v.aval), tuple(v.aval.shape), depth)
            for item, v in zip(items, body.invars[n_consts + n_carry :], strict=True)
        ]
        results = writer.inline(body, given["jaxpr"].consts, [*consts, *carried, *rows])
        for stack, result in zip(kept, results[n_carry:], strict=True):
            writer.put(f"{stack}[{counter}] = {result.text}")
        _carry_on(writer, carried, results[:n_carry])

    # what stands inside the loop depends on its counter, on rows or on what is carried
    lines, _ = writer.inside(write, pinned=False)
    steps = f"range({length - 1}, -1, -1)" if given["reverse"] else f"range({length})"
    if xs:
        turn = "[::-1]" if given["reverse"] else ""
        sources = [
            f"{x.text}{turn}.tolist()" if len(x.shape) == 1 else f"{x.text}{turn}" for x in xs
        ]
        names = ", ".join([counter, *items])
        writer.put(f"for {names} in zip({steps}, {', '.join(sources)}):")
    else:
        writer.put(f"for {counter} in {steps}:")
    writer.blocks[-1].lines.extend(indented(lines))
    stacks = [
        Value(name, tuple(v.aval.shape), dtype_of(v.aval), tuple(v.aval.shape), writer.depth)
        for name, v in zip(kept, equation.outvars[n_carry:], strict=True)
    ]
    return [*_after(writer, carried), *stacks]


def _stack(writer: Writer, variable: Any, length: int) -> str:
    """The name of an empty array with a row for each step of a loop."""
    name = writer.name()
    shape: Shape = (length, *tuple(variable.aval.shape))
    writer.put(f"{name} = np.empty({shape}, {writer.helper(dtype_of(variable.aval))})")
    return name


@rule("while")
def _while(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    given = equation.params
    cond, body = given["cond_jaxpr"], given["body_jaxpr"]
    n_cond, n_body = given["cond_nconsts"], given["body_nconsts"]
    cond_consts, body_consts = operands[:n_cond], operands[n_cond : n_cond + n_body]
    carried = _carried(writer, body.jaxpr.invars[n_body:], operands[n_cond + n_body :])

    def write() -> None:
        (going,) = writer.inline(cond.jaxpr, cond.consts, [*cond_consts, *carried])
        writer.put(f"if not {going.text}:")
        writer.put("    break")
        results = writer.inline(body.jaxpr, body.consts, [*body_consts, *carried])
        _carry_on(writer, carried, results)

    lines, _ = writer.inside(write, pinned=False)
    writer.put("while True:")
    writer.blocks[-1].lines.extend(indented(lines))
    return _after(writer, carried)


@rule("cond")
def _cond(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    which, *args = operands
    branches = equation.params["branches"]
    chosen = writer.known_number(which)
    if chosen is not None:
        branch = branches[max(min(int(chosen), len(branches) - 1), 0)]
        return writer.inline(branch.jaxpr, branch.consts, args)
    names = [writer.name() for _ in equation.outvars]
    bodies = []
    for branch in branches:

        def write(branch: Any = branch) -> None:
            results = writer.inline(branch.jaxpr, branch.consts, args)
            for name, result in zip(names, results, strict=True):
                writer.put(f"{name} = {writer.whole(result).text}")

        bodies.append(writer.inside(write, pinned=True)[0])
    for i, lines in list(enumerate(bodies))[1:]:
        test = f"{which.text} >= {i}" if i == len(bodies) - 1 else f"{which.text} == {i}"
        writer.put(f"{'if' if i == 1 else 'elif'} {test}:")
        writer.blocks[-1].lines.extend(indented(lines))
    if len(bodies) == 1:
        writer.put("if True:")
    else:
        writer.put("else:")
    writer.blocks[-1].lines.extend(indented(bodies[0]))
    return [
        Value(name, tuple(v.aval.shape), dtype_of(v.aval), tuple(v.aval.shape), writer.depth)
        for name, v in zip(names, equation.outvars, strict=True)
    ]
