"""Collectors: a posterior from your own training loop, which gives its parameters now and then."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from kalvi.gaussians import Gaussian
from kalvi.numerics.precision import matching_precision
from kalvi.numerics.pytrees import Flattener, consume_generator
from kalvi.rules import factor_analysis as fa
from kalvi.rules.rule import Batch
from kalvi.rules.swag import FASWAG, SWA, SWAG, PathRule, WindowAverage
from kalvi.streams import run

METHODS = {
    "swa": lambda rank: SWA(),
    "swag": SWAG,
    "fa": lambda rank: FASWAG(fa.RecursiveFA(), rank),
    "online_em": lambda rank: FASWAG(fa.OnlineEM(), rank, random_start=True),
}
"""The rule of each method name, given a rank."""


class Collector:
    """A Gaussian fitted to the parameters that a training loop visits.

    Memory does not grow with the number of iterates: for each parameter "swa" keeps 1 number, "swag" rank +
    2, "fa" rank + 18 and "online_em" 3 rank + 20 (for a rank of 20: 1, 22, 38 and 80). The parameters may
    be a vector, a dictionary of arrays, an Equinox module, or a PyTorch `state_dict()`, `parameters()` or
    `named_parameters()`; means and draws come back in the same form.

    Parameters
    ----------
    method : {"swag", "swa", "fa", "online_em"} or PathRule, default "swag"
        "swag" keeps the last `rank` deviations, "swa" only the mean, "fa" a recursive factor analysis of
        all iterates, and "online_em" one by online EM.
    rank : int, default 20
        Number of factors that the covariance has besides its diagonal. Not used by "swa" or by a rule.
    window : int, default 1
        Collect the means of so many successive iterates instead of the iterates.
    random_state : int, default 0
        Seed of the start of "online_em".

    Examples
    --------
    >>> import numpy as np
    >>> import kalvi
    >>> rng, collector = np.random.default_rng(0), kalvi.networks.Collector("swag", rank=2)
    >>> for _ in range(1000):
    ...     _ = collector.collect({"bias": rng.normal(size=1), "weight": 3 * rng.normal(size=2)})
    >>> np.sqrt(collector.posterior.variance()).shape
    (3,)
    >>> [sorted(draw) for draw in collector.sample(2, random_state=0)]
    [['bias', 'weight'], ['bias', 'weight']]
    """

    def __init__(
        self,
        method: str | PathRule = "swag",
        *,
        rank=20,
        window=1,
        random_state=0,
    ):
        rule = method if isinstance(method, PathRule) else _make_rule(method, rank)
        self.rule = (
            rule if window == 1 else WindowAverage(rule, _checked_count("window", window, 1))
        )
        self.random_state = _checked_count("random_state", random_state, 0)
        self.n_collected = 0
        self._flat: Flattener | None = None
        self._state: Any = None
        self._posterior: Any = None

    def collect(self, params: Any) -> "Collector":
        """Learn from one more iterate. A refused iterate changes nothing."""
        params = consume_generator(params)
        flat = Flattener(params) if self._flat is None else self._flat
        theta = flat.flatten(params)
        with matching_precision(flat.dtype):
            key = jr.key(self.random_state)
            fresh = self._flat is None
            state = _without_shared_arrays(self.rule.init(theta, key=key)) if fresh else self._state
            one = jnp.ones(1, theta.dtype)
            self._state = run.advance(self.rule, state, Batch(theta[None, :], one, one))
        self._flat, self._posterior = flat, None
        self.n_collected += 1
        return self

    @property
    def flat(self) -> Flattener:
        """The layout of the parameters in a vector: `flat.unflatten(theta)` gives them back."""
        if self._flat is None:
            raise ValueError(
                "nothing has been collected; call collect(params) in the training loop."
            )
        return self._flat

    @property
    def posterior(self) -> Gaussian:
        """The Gaussian of the flat parameter vector."""
        least = self.rule.least
        if self.n_collected < least:
            raise ValueError(
                f"a Gaussian needs at least {least} collected iterates; there are {self.n_collected}."
            )
        if self._posterior is None:
            with matching_precision(
                self.flat.dtype
            ):  # a copy: the next collect overwrites the memory of the state
                self._posterior = run.copied(run.call(_posterior, self.rule, self._state))
        return self._posterior

    def mean(self) -> Any:
        """The average of the iterates, as parameters."""
        flat = self.flat
        with matching_precision(flat.dtype):
            return flat.unflatten(run.copied(run.call(_mean, self.rule, self._state)))

    def sample(
        self, n=1, *, key: PRNGKeyArray | None = None, random_state: int | None = None
    ) -> Iterator[Any]:
        """n draws of the parameters, each made when it is asked for."""
        _checked_count("n", n, 1)
        keys = jr.split(_one_key(key, random_state), n)
        posterior, flat = self.posterior, self.flat
        return (flat.unflatten(run.call(_draw, posterior, k)) for k in keys)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle JAX arrays as NumPy arrays: unpickling must not depend on JAX's global precision."""
        kept = self.__dict__ | {"_posterior": None}
        return kept | {"_state": jax.tree.map(np.asarray, kept["_state"])}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        if self._flat is not None:
            with matching_precision(self._flat.dtype):
                self._state = jax.tree.map(jnp.asarray, self._state)


def _without_shared_arrays(state: Any) -> Any:
    """The state with no array shared by two fields, so that its memory can be reused."""
    seen: set[int] = set()

    def own(leaf):
        repeated = id(leaf) in seen
        seen.add(id(leaf))
        return jnp.array(leaf) if repeated else leaf

    return jax.tree.map(own, state)


def _posterior(rule: PathRule, state: Any) -> Gaussian:
    return rule.posterior(state)


def _mean(rule: PathRule, state: Any):
    return rule.mean(state)


def _draw(posterior: Gaussian, key: PRNGKeyArray):
    return posterior.sample(key, 1)[0]


def _one_key(key: PRNGKeyArray | None, random_state: int | None) -> PRNGKeyArray:
    if key is not None and random_state is None:
        return key
    if random_state is not None and key is None:
        return jr.key(random_state)
    raise ValueError("sample needs either a key or a random_state; give one of them.")


def _make_rule(method: Any, rank: Any) -> PathRule:
    if method not in METHODS:
        raise ValueError(
            f"method must be one of {', '.join(METHODS)}, or a PathRule; got {method!r}."
        )
    return METHODS[method](_checked_count("rank", rank, 0 if method == "swag" else 1))


def _checked_count(name: str, value: Any, least: int) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (whole and value >= least):
        raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}.")
    return int(value)
