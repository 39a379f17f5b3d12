"""What a Gaussian process or a network is made of."""

from markupsafe import Markup

from kalvi.tabular.report import formatting
from kalvi.tabular.report.rendering import Child, Summary, known, macros, named, value_of

METHODS = {
    "lrvga": "one pass of recursive variational Gaussian approximation",
    "vifa": "variational inference with a factor-analysis covariance",
    "swag": "stochastic weight averaging",
    "multiswag": "stochastic weight averaging of several networks",
    "laplace": "Laplace approximation",
}
REGIMES = {"sparse": "inducing points"}
MOST_LATENT = 12
BOUND = "bound on the log evidence"
CARDS = macros("shapes.html")


def shape(summary: Summary) -> Markup | None:
    """Kernel and hyperparameters, or the layers."""
    found = formatting.mapping(summary.get("shape"))
    if found.get("kind") == "process":
        return _process(found, formatting.listing(summary.get("classes")))
    return _network(found) if found.get("kind") == "network" else None


def _process(found: Summary, classes: list) -> Markup | None:
    latent = formatting.mappings(found.get("latent"))
    if not latent:
        return None
    rows: list[list[Child]] = []
    for k, function in enumerate(latent[:MOST_LATENT]):
        of = named(classes[k], 60) if len(latent) == len(classes) > k else None
        for key, value in formatting.mapping(function.get("hyperparameters")).items():
            middle = [of] if len(latent) > 1 else []
            rows.append([named(key.replace("_", " "), 60), *middle, value_of(value)])
    pairs: list[tuple[Child, Child]] = [
        ("kernel", named(latent[0].get("kernel", "?"), 120)),
        ("likelihood", named(latent[0].get("likelihood", "?"), 60)),
        ("regime", REGIMES.get(str(found.get("regime")), "a latent value for every row")),
        ("inducing points", formatting.count(found.get("inducing"))),
        (BOUND, formatting.number(found.get("bound"), 6)),
    ]
    heads = ["hyperparameter", *(["of"] if len(latent) > 1 else []), "fitted"]
    return CARDS.process(known(pairs), heads, rows)


def _network(found: Summary) -> Markup:
    layers = " → ".join(map(formatting.count, formatting.listing(found.get("layers"))))
    method = str(found.get("method", ""))
    pairs: list[tuple[Child, Child]] = [
        ("layers", layers or formatting.ABSENT),
        ("activation", named(found.get("activation", "?"), 40)),
        ("parameters", formatting.count(found.get("parameters"))),
        ("method", METHODS.get(method) or named(method, 60)),
        ("posterior", named(found.get("posterior", "?"), 60)),
        (BOUND, formatting.number(found.get("bound"), 6)),
    ]
    return CARDS.network(known(pairs))
