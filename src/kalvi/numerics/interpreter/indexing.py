"""JAX's gather and scatter, translated into NumPy's indexing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from kalvi.numerics.interpreter.shapes import with_shape
from kalvi.numerics.interpreter.writer import Value, Writer, rule

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """The starts of windows of an array, and their sizes along each of its axes."""

    sizes: Axes
    gone: Axes  # axes of the array that windows lack
    batching: Axes  # axes of the array that run parallel to axes of the index
    index_batching: Axes
    start_axes: Axes  # the axis of the array to which each entry of an index belongs

    def places(self, shape: Axes, index: np.ndarray) -> tuple[list[Any], Axes]:
        """The index along each axis of the array, with the axes of the index before those of the window."""
        outer = index.shape[:-1]
        kept = [i for i in range(len(shape)) if i not in self.gone and i not in self.batching]
        places = []
        for axis in range(len(shape)):
            place = np.zeros(outer + (1,) * len(kept), np.int64)
            if axis in self.start_axes:
                start = index[..., self.start_axes.index(axis)]
                place = place + start.reshape(outer + (1,) * len(kept))
            if axis in self.batching:
                along = self.index_batching[self.batching.index(axis)]
                own = [1] * (len(outer) + len(kept))
                own[along] = outer[along]
                place = place + np.arange(outer[along]).reshape(own)
            if axis in kept:
                own = [1] * (len(outer) + len(kept))
                own[len(outer) + kept.index(axis)] = self.sizes[axis]
                place = place + np.arange(self.sizes[axis]).reshape(own)
            places.append(place)
        return places, tuple(self.sizes[i] for i in kept)

    def are_rows(self, shape: Axes) -> bool:
        """Whether each window is everything at one index of the array's first axis."""
        whole = self.start_axes == self.gone == (0,) and not self.batching
        return whole and self.sizes[1:] == shape[1:]

    def only(self, index: np.ndarray) -> tuple[slice, ...] | None:
        """The single window of an array, if there is only one index."""
        if index.ndim > 1 or self.batching:
            return None
        first = dict(zip(self.start_axes, index.tolist(), strict=True))
        starts = (first.get(axis, 0) for axis in range(len(self.sizes)))
        return tuple(slice(at, at + size) for at, size in zip(starts, self.sizes, strict=True))

    def clipped(self, shape: Axes, index: np.ndarray) -> np.ndarray:
        """The starts, moved if a window would end outside the array."""
        most = np.array([shape[axis] - self.sizes[axis] for axis in self.start_axes], np.int64)
        return np.minimum(np.maximum(index, 0), most)  # np.clip takes several times as long

    def inside(self, shape: Axes, index: np.ndarray) -> Any:
        """Whether the window that begins at each start is inside the array."""
        most = np.array([shape[axis] - self.sizes[axis] for axis in self.start_axes], np.int64)
        return np.all((index >= 0) & (index <= most), axis=-1)


def _axes(numbers: Iterable[Any]) -> Axes:
    """Axes as Python integers; JAX gives some as NumPy integers."""
    return tuple(map(int, numbers))


@dataclass(frozen=True)
class GatherPlan:
    """Windows of an array, one for each index."""

    windows: Windows
    order: Axes  # the order of the axes of index and window in the result
    fills: bool
    fill: Any

    @classmethod
    def of(cls, given: dict[str, Any], shape: Axes) -> "GatherPlan":
        """The plan of a gather with these parameters."""
        numbers = given["dimension_numbers"]
        windows = Windows(
            _axes(given["slice_sizes"]),
            _axes(numbers.collapsed_slice_dims),
            _axes(numbers.operand_batching_dims),
            _axes(numbers.start_indices_batching_dims),
            _axes(numbers.start_index_map),
        )
        offset = numbers.offset_dims
        outer = [i for i in range(len(shape)) if i not in offset]
        position = {place: i for i, place in enumerate([*outer, *offset])}
        order = tuple(position[i] for i in range(len(shape)))
        fills = given["mode"] == GatherScatterMode.FILL_OR_DROP
        return cls(windows, order, fills, given["fill_value"])

    def place(self, shape: Axes, index: np.ndarray, axis: int) -> np.ndarray:
        """The index along one axis of an array, in the shape of index and window."""
        places, window = self.windows.places(shape, self.windows.clipped(shape, index))
        return np.broadcast_to(places[axis], index.shape[:-1] + window).copy()

    def place_shape(self, outer: Axes) -> Axes:
        """The shape of index and window."""
        gone = {*self.windows.gone, *self.windows.batching}
        return outer + tuple(size for i, size in enumerate(self.windows.sizes) if i not in gone)

    def __call__(self, array: np.ndarray, index: np.ndarray) -> np.ndarray:
        clipped = self.windows.clipped(array.shape, index)
        window = tuple(
            size for i, size in enumerate(self.windows.sizes) if i not in self.windows.gone
        )
        if (only := self.windows.only(clipped)) is not None:
            found = array[only].reshape(window)
        elif self.windows.are_rows(array.shape):
            found = array[clipped[..., 0]]
        else:
            places, window = self.windows.places(array.shape, clipped)
            found = array[tuple(places)] if places else array
            found = np.broadcast_to(found, index.shape[:-1] + window)
        if self.fills:
            inside = self.windows.inside(array.shape, index)
            inside = inside.reshape(inside.shape + (1,) * len(window))
            fill = self.fill if self.fill is not None else _default_fill(array.dtype)
            found = np.where(inside, found, np.asarray(fill, array.dtype))
        return found.transpose(self.order)


def _default_fill(dtype: np.dtype) -> Any:
    if dtype.kind == "f":
        return np.nan
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


COMBINED = {
    "scatter-add": np.add,
    "scatter-mul": np.multiply,
    "scatter-min": np.minimum,
    "scatter-max": np.maximum,
}


@dataclass(frozen=True)
class ScatterPlan:
    """Windows of updates put into an array, one for each index."""

    combine: str
    update_windows: Axes
    gone: Axes
    batching: Axes
    index_batching: Axes
    start_axes: Axes
    clips: bool

    @classmethod
    def of(cls, name: str, given: dict[str, Any]) -> "ScatterPlan":
        """The plan of a scatter with these parameters."""
        numbers = given["dimension_numbers"]
        return cls(
            name,
            _axes(numbers.update_window_dims),
            _axes(numbers.inserted_window_dims),
            _axes(numbers.operand_batching_dims),
            _axes(numbers.scatter_indices_batching_dims),
            _axes(numbers.scatter_dims_to_operand_dims),
            given["mode"] == GatherScatterMode.CLIP,
        )

    def replaces_one_window(self, index_shape: Axes) -> bool:
        """Whether a single window is replaced, at one number along one axis, that covers all other axes."""
        return (
            self.combine == "scatter"
            and index_shape == (1,)
            and not self.clips
            and not self.batching
            and set(self.gone) <= set(self.start_axes)
        )

    def __call__(self, array: np.ndarray, index: np.ndarray, updates: np.ndarray) -> np.ndarray:
        outer = [i for i in range(updates.ndim) if i not in self.update_windows]
        updates = updates.transpose([*outer, *self.update_windows])
        kept = [i for i in range(array.ndim) if i not in self.gone and i not in self.batching]
        window = iter(updates.shape[len(outer) :])
        sizes = tuple(next(window) if i in kept else 1 for i in range(array.ndim))
        windows = Windows(sizes, self.gone, self.batching, self.index_batching, self.start_axes)
        inside = np.True_ if self.clips else windows.inside(array.shape, index)
        index = windows.clipped(array.shape, index)
        only = windows.only(index)
        if only is not None and self.combine == "scatter":
            new = array.copy()
            if inside:
                new[only] = updates.reshape(sizes)
            return new
        places = np.broadcast_arrays(*windows.places(array.shape, index)[0], updates)[:-1]
        new = array.copy()
        if not inside.all():
            places = [place[inside] for place in places]
            updates = updates[inside]
        if self.combine == "scatter":
            new[tuple(places)] = updates
        else:
            COMBINED[self.combine].at(new, tuple(places), updates)
        return new


@rule("gather")
def _gather(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval, given = equation.outvars[0].aval, equation.params
    plan = GatherPlan.of(given, tuple(aval.shape))
    array, index = operands
    if index.depth == 0 and array.shape and not plan.fills:
        return [_pick(writer, plan, aval, array, index)]
    return [_call(writer, plan, aval, operands)]


def _pick(writer: Writer, plan: GatherPlan, aval: Any, array: Value, index: Value) -> Value:
    """The windows at constant indices, whose positions are computed once."""
    indices, places = writer.whole(index), []
    for axis in range(len(array.shape)):
        text = f"{writer.helper(plan)}.place({array.shape}, {writer.as_array(index)}, {axis})"
        shape = plan.place_shape(index.shape[:-1])
        places.append(writer.set(text, shape, np.int64, [indices]))
    array = writer.whole(array)
    texts = ", ".join(writer.as_array(place) for place in places)
    text = f"{array.text}[{texts}].transpose({plan.order})"
    text = f"{text}.item()" if aval.shape == () else text
    return writer.set(text, tuple(aval.shape), aval.dtype, [array, *places])


@rule("scatter", *COMBINED, takes_entries=True)
def _scatter(writer: Writer, equation: Any, operands: list[Value]) -> Any:
    aval, given = equation.outvars[0].aval, equation.params
    plan = ScatterPlan.of(equation.primitive.name, given)
    array, index, update = operands
    if plan.replaces_one_window(index.shape) and array.shape != ():
        return [_replace_window(writer, plan, array, index, update)]
    arrays = [writer.array(value) for value in operands]
    return [_call(writer, plan, aval, arrays)]


def _call(writer: Writer, plan: Any, aval: Any, operands: list[Value]) -> Value:
    """The result of a call of a plan."""
    texts = ", ".join(writer.as_array(value) for value in operands)
    text = f"{writer.helper(plan)}({texts})"
    text = f"{text}.item()" if aval.shape == () else text
    parts = [writer.whole(value) for value in operands]
    return writer.set(text, tuple(aval.shape), aval.dtype, parts)


def _replace_window(
    writer: Writer, plan: ScatterPlan, array: Value, index: Value, update: Value
) -> Value:
    """The array with the window at one index replaced, if it is inside."""
    (axis,) = plan.start_axes
    kept = iter(update.shape)
    sizes = tuple(1 if i in plan.gone else next(kept) for i in range(len(array.shape)))
    most = array.shape[axis] - sizes[axis]
    if index.known is not None and not 0 <= index.known <= most:
        return array
    if index.known is not None and sizes == array.shape:  # the whole array is replaced
        return with_shape(writer, update, array.shape)
    array, update = writer.whole(array), writer.array(update)
    own = index.text if axis in plan.gone else f"{index.text}:{index.text} + {sizes[axis]}"
    cut = ", ".join(own if i == axis else ":" for i in range(len(array.shape)))
    text = f"put({array.text}, np.s_[{cut}], {update.text})"
    if index.known is None:
        text = f"({text} if 0 <= {index.text} <= {most} else {array.text})"
    return writer.set(text, array.shape, array.dtype, [array, index, update])
