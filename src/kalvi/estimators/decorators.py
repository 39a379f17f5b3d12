"""Decorators of estimators and their methods."""

from functools import update_wrapper, wraps
from types import FunctionType
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


def documented(parameters: str, attributes: str = ""):
    """Put descriptions that classes share where a docstring says PARAMETERS and ATTRIBUTES."""

    def document(cls: Class) -> Class:
        heading = "Parameters\n    ----------\n    "
        cls.__doc__ = (cls.__doc__ or "").replace("PARAMETERS", heading + parameters)
        cls.__doc__ = cls.__doc__.replace("ATTRIBUTES", attributes)
        if "__init__" not in vars(cls):
            cls.__init__ = _own_init(cls)
        return cls

    return document


def all_or_nothing(method):
    """Make a method leave the estimator as it was if it fails or is interrupted."""

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


def _own_init(cls: type) -> Any:
    """A copy of the inherited __init__ with the name of the class, which errors about arguments show."""
    old: Any = cls.__init__
    code = (old.__code__, old.__globals__, old.__name__, old.__defaults__, old.__closure__)
    new: Any = update_wrapper(FunctionType(*code), old)
    new.__kwdefaults__, new.__qualname__ = old.__kwdefaults__, f"{cls.__name__}.__init__"
    del new.__wrapped__
    vars(new).update(vars(old))
    return new
