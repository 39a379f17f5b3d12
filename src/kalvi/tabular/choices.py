"""What a person decided about a model of a table that has a target."""

from typing import Any, NamedTuple

from kalvi.columns.encoder import Settings, is_chosen


class Choices(NamedTuple):
    """The target, the columns, what becomes of missing values, and the estimator's parameters."""

    target: str
    model: str | None = None
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    weight: str | None = None
    classes: tuple[str, ...] = ()
    missing: str = "error"
    skip_unlabelled: bool = False
    hash_bits: int | None = None
    max_width: int = 2**20
    parameters: dict[str, Any] = {}  # noqa: RUF012 (of the estimator; never changed)
    keep_rows: bool = False  # some rows stay in the model: examples, and a sample for the diagnosis
    diagnose: bool = False  # the diagnosis is made when all rows are learned

    @property
    def advice(self) -> str:
        """What a user can do about entries that are not of the kind of their column."""
        return (
            "have such entries counted as missing (--missing impute, or --skip-unlabelled for the target), "
            "or read the column otherwise (--as NAME=category, --drop NAME)"
        )

    def strays(self, name: str) -> str:
        """What becomes of entries of a column that are not of its kind: "keep", "missing" or "refuse"."""
        if name == self.target:
            return "missing" if self.skip_unlabelled else "refuse"
        if name != self.weight and not is_chosen(name, self.features, self.drop):
            return "keep"
        return "missing" if self.missing == "impute" and name != self.weight else "refuse"

    def encoder_settings(self, *, widens: bool) -> Settings:
        """How columns become numbers, for a model whose rows may become wider or not."""
        most = self.max_width + (2**self.hash_bits if self.hash_bits else 0)
        return Settings(self.missing == "impute", self.hash_bits, most, not widens)

    def stated(self) -> dict[str, Any]:
        """The choices that differ from what is chosen for everybody, and the estimator's parameters."""
        chosen = self._asdict()
        parameters = chosen.pop("parameters")
        if chosen["max_width"] == Choices._field_defaults["max_width"]:
            del chosen["max_width"]
        own = {name: value for name, value in chosen.items() if value not in (None, (), False)}
        return own | parameters
