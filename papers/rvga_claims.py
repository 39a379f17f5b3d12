"""What the R-VGA paper says of its filters, judged on the rows of a figure and on further draws of them.

The paper shows one data set a panel and words its claims accordingly ("generally", "in most experiments",
"may", "sometimes"). A claim about the order of methods is therefore judged on every draw, the first being
the figure's own rows; one that says what may happen holds if it happens.
"""

from collections.abc import Callable, Sequence

import numpy as np

from papers.results import Claim
from papers.rvga_filters import Comparison

KALMAN = ("EKF", "QKF")
Draws = Sequence[Sequence[Comparison]]
"""The panels of a figure, for each draw of the rows; the first are the figure's own."""


def outperforms(draws: Draws) -> Claim:
    """Section 6.2: it "generally outperforms the EKF and QKF"."""
    text = "R-VGA generally outperforms the EKF and the QKF"
    return _judged(text, draws, ("implicit", *KALMAN), _ahead)


def close_second(draws: Draws) -> Claim:
    """Section 6.3: "a close second in most experiments, especially if we compare final estimates"."""

    def second(c: Comparison) -> bool:
        return c.final("implicit") < c.final("explicit") < min(c.final(m) for m in KALMAN)

    text = "The explicit scheme runs second in most experiments, before the EKF and the QKF"
    return _judged(text, draws, ("implicit", "explicit", *KALMAN), second)


def may_beat_laplace(draws: Draws, where: str = "") -> Claim:
    """Section 6.3: it "is even susceptible to beat the batch Laplace approximation"."""
    outcomes = [c.final("implicit") < c.final("Laplace") for panels in draws for c in panels]
    numbers = _finals(draws[0], ("implicit", "Laplace")) | _share(outcomes)
    text = f"R-VGA is susceptible to beat the batch Laplace approximation{where}"
    return Claim(text, numbers, any(outcomes))


def ekf_may_win(draws: Draws) -> Claim:
    """Section 6.2: the EKF "might even beat R-VGA sometimes, see Figure 4"."""
    outcomes = [c.final("EKF") < c.final("implicit") for panels in draws for c in panels]
    numbers = _finals(draws[0], ("EKF", "implicit")) | _share(outcomes)
    return Claim("The EKF might even beat R-VGA sometimes", numbers, any(outcomes))


def wide_prior(confident: Draws, wide: Draws) -> list[Claim]:
    """What figures 3 and 5 show together: the same rows under a confident and a very wide, wrong prior."""
    excess = [{m: _excess(c, m) for m in ("implicit", "explicit", *KALMAN)} for (c,) in wide]
    shown = {f"{m} above the best Gaussian": value for m, value in excess[0].items()}
    gaps = [
        [c.final("explicit") - c.final("implicit") for (c,) in pair]
        for pair in zip(confident, wide, strict=True)
    ]
    ratio = {"EKF over R-VGA, median": float(np.median([e["EKF"] / e["implicit"] for e in excess]))}
    return [
        Claim(
            "The EKF may prove unreliable (1000 times R-VGA's excess over the best Gaussian)",
            shown | ratio,
            any(e["EKF"] > 1e3 * e["implicit"] for e in excess),
        ),
        Claim(
            "R-VGA is much less sensitive to large μ₀ or σ₀ than the EKF (a tenth of its excess)",
            shown | ratio,
            [e["implicit"] < e["EKF"] / 10 for e in excess],
        ),
        Claim(
            "The explicit scheme tends to degrade for large σ₀ (it falls further behind)",
            dict(zip(("behind at σ₀ = 1", "behind at σ₀ = 100"), gaps[0], strict=True)),
            [far > near for near, far in gaps],
        ),
    ]


def moderate(sharp: Draws, flat: Draws) -> Claim:
    """Section 6.3 on figures 7 and 8."""
    spreads = [[_behind(c) for c in panels] for draws in (sharp, flat) for panels in draws]
    n = len(sharp)
    numbers = {
        f"EKF behind R-VGA, {c.setting.label}, σ₀ = {c.setting.prior_std:g}": _behind(c)
        for c in (*sharp[0], *flat[0])
    }
    held = [max(a) < min(b) for a, b in zip(spreads[:n], spreads[n:], strict=True)]
    return Claim("With a weighty prior discrepancies look more moderate", numbers, held)


def indifferent(draws: Draws) -> Claim:
    """Figure 1: logistic and inverse probit "shall be indifferently used in applications"."""
    changes = [
        [c.final("accurate integrals") - c.final("implicit") for c in panels] for panels in draws
    ]
    labels = [c.setting.label for c in draws[0]]
    mean, spread = np.mean(changes, axis=0), np.std(changes, axis=0)
    numbers = dict(zip((f"mean change, {label}" for label in labels), mean, strict=True))
    numbers |= dict(zip((f"its deviation, {label}" for label in labels), spread, strict=True))
    text = "The inverse probit may be used indifferently (accurate integrals change KL by < 1 nat)"
    return Claim(text, numbers, [abs(change) < 1 for panel in changes for change in panel])


def good_performance(draws: Draws) -> list[Claim]:
    """Appendix 9.6: "consistently yields good performance"; its captions on Laplace."""
    found = {}
    for method in ("implicit", "Laplace"):
        values = [_excess(c, method) for panels in draws for c in panels]
        numbers = {f"{method} above the best Gaussian": values[0], "median": np.median(values)}
        found[method] = numbers | {"largest": max(values)}, [value < 2 for value in values]
    return [
        Claim(
            "R-VGA consistently yields good performance (within 2 nats of the best Gaussian)",
            *found["implicit"],
        ),
        Claim(
            "The batch Laplace covariance is considered accurate (within 2 nats of the best Gaussian)",
            *found["Laplace"],
        ),
    ]


def other_divergences(draws: Draws, measured: list[dict[str, dict[str, float]]]) -> Claim:
    """Section 6.2: Laplace "may perform better for a right-sided KL or the Jensen-Shannon divergence"."""
    own, outcomes = measured[0], []
    for values in measured:
        laplace, ours = values["Laplace"], values["implicit"]
        left = laplace["left KL"] > ours["left KL"]
        outcomes.append(left and min(laplace[m] / ours[m] for m in ("right KL", "JS")) < 1)
    numbers = {
        f"{kind}, {m}": own[m][kind]
        for kind in ("left KL", "right KL", "JS")
        for m in ("implicit", "Laplace")
    }
    text = (
        "Where Laplace has the larger left KL it may perform better by the right-sided KL or by "
        "Jensen–Shannon (which the paper could not compute)"
    )
    return Claim(text, numbers | _share(outcomes), any(outcomes))


def _ahead(c: Comparison) -> bool:
    return all(c.final("implicit") < c.final(m) for m in KALMAN)


def _judged(
    text: str, draws: Draws, methods: Sequence[str], held: Callable[[Comparison], bool]
) -> Claim:
    """A claim on every panel of every draw; the numbers are the figure's own."""
    outcomes = [held(c) for panels in draws for c in panels]
    return Claim(text, _finals(draws[0], methods), outcomes)


def _finals(panels: Sequence[Comparison], methods: Sequence[str]) -> dict[str, float]:
    return {
        f"{m} ({c.setting.label})" if c.setting.label else m: c.final(m)
        for c in panels
        for m in methods
    }


def _share(outcomes: Sequence[bool]) -> dict[str, float]:
    return {"happens in": float(sum(outcomes)), "draws": float(len(outcomes))}


def _excess(c: Comparison, method: str) -> float:
    return c.final(method) - c.final("best Gaussian")


def _behind(c: Comparison) -> float:
    return c.final("EKF") - c.final("implicit")
