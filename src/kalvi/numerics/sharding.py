"""Parameters spread over devices: each device holds its share of the d rows of long arrays.

A low-rank Gaussian needs a block of rows only through sums over d, Gram matrices of p + b columns. So d can
be cut into as many pieces as there are devices:

    mean, diag (d,) and factor (d, p)   cut along d        NamedSharding(mesh, P("parameters"))
    a block of rows x (b, d)            cut along d        NamedSharding(mesh, P(None, "parameters"))
    everything of size p and b          on every device

A sum over d is a sum on every device and then one over the devices (`psum` of p × p numbers). Everything
else acts row by row on the share of each device. The code is the same for one device and for many: inside
`over`, the loops over d (`linalg.sweep`) run on every device over its own rows, and the compiler
distributes the rest.

    with kalvi.sharding.over():                        # all devices, of all processes
        prior = kalvi.sharding.spread(lambda: kalvi.LowRankPrecision(...))
        state = kalvi.fit(rule, prior, batches)        # batches through kalvi.sharding.columns

On several hosts, run the same program in every process and call `jax.distributed.initialize` first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kalvi.numerics.namespaces import AnyArray
from kalvi.numerics.program_cache import cached_programs

AXIS = "parameters"
"""The name of the mesh axis along which parameters are cut."""

ROWS, COLUMNS, WHOLE = PartitionSpec(AXIS), PartitionSpec(None, AXIS), PartitionSpec()

Tree = TypeVar("Tree")


@contextmanager
def over(devices: Any = None) -> Iterator[Mesh]:
    """A context in which parameters are spread over `devices`: all (None), a number of them, or a list.

    Inside it, make priors with `spread` and blocks of rows with `columns`; estimators with a `rank` do this
    themselves. The number of parameters must be a multiple of the number of devices.
    """
    there = jax.devices()
    if isinstance(devices, int):
        if not 1 <= devices <= len(there):
            raise ValueError(f"sharding.over({devices}): there are {len(there)} devices.")
        devices = there[:devices]
    devices = there if devices is None else list(devices)
    if not devices:
        raise ValueError("sharding.over needs at least one device; got none.")
    mesh = Mesh(np.array(devices), (AXIS,))
    with jax.set_mesh(mesh):
        yield mesh


def device_count() -> int:
    """The number of devices that share the parameters here: 1 outside `over` and in the code of one
    device."""
    mesh = jax.sharding.get_abstract_mesh()
    return 1 if mesh.empty or AXIS in mesh.manual_axes else mesh.shape.get(AXIS, 1)


def splits(dim: int) -> bool:
    """Whether arrays of `dim` rows are cut here."""
    return device_count() > 1 and dim % device_count() == 0


def check_splits(dim: int, whose: str) -> None:
    """Refuse a number of parameters that the devices cannot share evenly."""
    if dim % device_count():
        more = -dim % device_count()
        raise ValueError(
            f"{whose} has {dim} parameters, which {device_count()} devices cannot share evenly. Add {more} "
            "columns of zeros, or use fewer devices."
        )


def spread(made: Any) -> Any:
    """Spread a Gaussian, or a state with a `posterior`: its long arrays are cut along d, the others copied.

    If `made` is a function without arguments that makes it, each device makes its own part, and the whole
    need not fit on one of them. In a run with several processes all must make the same Gaussian.
    """
    whole: Any = eqx.filter_eval_shape(made) if callable(made) else made
    dim = getattr(whole, "posterior", whole).mean.shape[-1]
    check_splits(dim, type(whole).__name__)
    if device_count() == 1:
        return made() if callable(made) else made
    mesh = _mesh()

    def place(leaf: Any) -> NamedSharding:
        axis = leaf.shape.index(dim) if dim in leaf.shape else None
        return NamedSharding(mesh, WHOLE if axis is None else PartitionSpec(*[None] * axis, AXIS))

    if callable(made):
        shapes, rest = eqx.partition(whole, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
        build = jax.jit(
            lambda: eqx.filter(made(), eqx.is_array), out_shardings=jax.tree.map(place, shapes)
        )
        with cached_programs():
            return eqx.combine(build(), rest)
    return jax.tree.map(lambda leaf: _put(leaf, place(leaf)) if eqx.is_array(leaf) else leaf, made)


def columns(x: Any, shape: tuple[int, int] | None = None) -> AnyArray:
    """Rows (b, d), spread over the devices if d is cut, and otherwise unchanged.

    `x` is an array, or a function of two slices (rows, columns) that gives this part of the whole `shape`;
    each process then makes only the columns of its own devices.
    """
    if callable(x) != (shape is not None):
        raise ValueError("columns needs an array, or a function and the shape of its result.")
    shape, get = (np.shape(x), x.__getitem__) if shape is None else (shape, x)
    if not splits(shape[1]):
        return get((slice(0, shape[0]), slice(0, shape[1])))
    return jax.make_array_from_callback(shape, NamedSharding(_mesh(), COLUMNS), get)


def rows(x: np.ndarray) -> AnyArray:
    """A long array, spread over the devices if its rows are cut, and otherwise unchanged."""
    return _put(x, NamedSharding(_mesh(), ROWS)) if splits(len(x)) else x


def zeros(shape: tuple[int, int], dtype: Any) -> AnyArray:
    """Zeros, cut along their rows if these are cut, without ever existing as a whole."""
    if not splits(shape[0]):
        return np.zeros(shape, dtype)

    def part(where: Any) -> np.ndarray:
        return np.zeros(
            [len(range(*s.indices(n))) for s, n in zip(where, shape, strict=True)], dtype
        )

    return jax.make_array_from_callback(shape, NamedSharding(_mesh(), ROWS), part)


def gather(tree: Tree) -> Tree:
    """The tree with whole NumPy arrays, in every process."""

    def whole(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        if not leaf.is_fully_addressable and not leaf.is_fully_replicated:
            from jax.experimental.multihost_utils import process_allgather

            return np.asarray(process_allgather(leaf, tiled=True))
        return np.asarray(leaf)

    return jax.tree.map(whole, tree)


def on_each_device(function: Callable, specs: Any, out: Any) -> Callable:
    """A function that runs `function` on every device, on its part of the arguments, cut as `specs` say.

    Values that it takes from outside are whole on every device.
    """
    mesh = jax.sharding.get_abstract_mesh()
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)


def sum_over_devices(tree: Tree) -> Tree:
    """The sum over the devices of the tree of each, inside `on_each_device`."""
    return jax.tree.map(lambda leaf: jax.lax.psum(leaf, AXIS), tree)


def map_rows(function: Callable, *arrays: jax.Array) -> jax.Array:
    """function(*arrays), which acts on each of the d rows separately; every device does its own rows."""
    if not splits(arrays[0].shape[0]):
        return function(*arrays)
    return on_each_device(function, (ROWS,) * len(arrays), ROWS)(*arrays)


def _mesh() -> Mesh:
    return jax.sharding.get_mesh()


def _put(leaf: Any, sharding: NamedSharding) -> jax.Array:
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    whole = np.asarray(leaf)
    return jax.make_array_from_callback(whole.shape, sharding, lambda part: whole[part])
