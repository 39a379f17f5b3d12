"""Decorators of estimators and their methods."""

from dataclasses import dataclass, field
from functools import wraps
from typing import TypeVar, dataclass_transform

Class = TypeVar("Class", bound=type)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def parametrised(cls: Class) -> Class:
    """Make the __init__ of an estimator from its annotated attributes, which are its parameters."""
    return dataclass(kw_only=True, eq=False, repr=False)(cls)


def documented(parameters: str, attributes: str = ""):
    """Insert shared descriptions where a docstring has PARAMETERS and ATTRIBUTES."""

    def document(cls: Class) -> Class:
        heading = "Parameters\n    ----------\n    "
        cls.__doc__ = (cls.__doc__ or "").replace("PARAMETERS", heading + parameters)
        cls.__doc__ = cls.__doc__.replace("ATTRIBUTES", attributes)
        return cls

    return document


def all_or_nothing(method):
    """Make a method restore the estimator if it fails or is interrupted."""

    @wraps(method)
    def attempt(self, *args, **kwargs):
        before = dict(self.__dict__)
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return attempt
