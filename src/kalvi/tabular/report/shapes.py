"""What a Gaussian process or a network is made of."""

from kalvi.tabular.report import words
from kalvi.tabular.report.cards import Summary, card, note, value_of
from kalvi.tabular.report.markup import Child, Html, definitions, name, table

METHODS = {
    "lrvga": "one pass of recursive variational Gaussian approximation",
    "vifa": "variational inference with a factor-analysis covariance",
    "swag": "stochastic weight averaging",
    "multiswag": "stochastic weight averaging of several networks",
    "laplace": "Laplace approximation",
}
MOST_LATENT = 12


def shape(summary: Summary) -> Html | None:
    """Kernel and hyperparameters, or the layers."""
    found = words.mapping(summary.get("shape"))
    if found.get("kind") == "process":
        return _process(found, words.listing(summary.get("classes")))
    return _network(found) if found.get("kind") == "network" else None


def _process(found: Summary, classes: list) -> Html | None:
    latent = [f for f in words.listing(found.get("latent")) if isinstance(f, dict)]
    if not latent:
        return None
    rows: list[list[Child]] = []
    for k, function in enumerate(latent[:MOST_LATENT]):
        values = words.mapping(function.get("hyperparameters"))
        of = name(classes[k], 60) if len(latent) == len(classes) > k else None
        for key, value in values.items():
            rows.append(
                [
                    name(key.replace("_", " "), 60),
                    *([of] if len(latent) > 1 else []),
                    value_of(value),
                ]
            )
    heads: list[Child] = ["hyperparameter", *(["of"] if len(latent) > 1 else []), "fitted"]
    kernel = name(latent[0].get("kernel", "?"), 120)
    regime = (
        "inducing points" if found.get("regime") == "sparse" else "a latent value for every row"
    )
    pairs: list[tuple[Child, Child]] = [
        ("kernel", kernel),
        ("likelihood", name(latent[0].get("likelihood", "?"), 60)),
        ("regime", regime),
        ("inducing points", words.count(found.get("inducing"))),
        ("bound on the log evidence", words.number(found.get("bound"), 6)),
    ]
    told = (
        "The bound on the log evidence pays for every freedom of the kernel, so it may be compared "
        "between kernels, which scores on the same rows may not."
    )
    return card(
        "Gaussian process",
        note(told),
        definitions([(a, b) for a, b in pairs if b != words.ABSENT], "settings"),
        table("Hyperparameters, as fitted", heads, rows) if rows else None,
    )


def _network(found: Summary) -> Html:
    layers = words.listing(found.get("layers"))
    method = str(found.get("method", ""))
    pairs: list[tuple[Child, Child]] = [
        ("layers", " → ".join(words.count(size) for size in layers) or words.ABSENT),
        ("activation", name(found.get("activation", "?"), 40)),
        ("parameters", words.count(found.get("parameters"))),
        ("method", METHODS.get(method) or name(method, 60)),
        ("posterior", name(found.get("posterior", "?"), 60)),
        ("bound on the log evidence", words.number(found.get("bound"), 6)),
    ]
    told = "Inputs on the left, outputs on the right; every weight has a mean and a variance."
    return card(
        "Network",
        note(told),
        definitions([(a, b) for a, b in pairs if b != words.ABSENT], "settings"),
    )
