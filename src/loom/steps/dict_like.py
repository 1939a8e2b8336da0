"""A pydantic model that keeps undeclared keywords too, with attribute and mapping access to them.

The base of events and of `DictState`.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Self

from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView

_KNOWN = "__loom_known__"
_EXTRAS = "__loom_extras__"
_COLLECTS_FIELDS = "pydantic._internal._fields"


class _MappingMethod:
    """Makes a method of the mapping face give way to a declared field of its name.

    The values of fields are in the instance's `__dict__`, which comes before a descriptor that has only `__get__`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: DictLikeModel | None, owner: type[DictLikeModel]) -> Any:
        name = self._function.__name__
        if name in owner.__pydantic_fields__ or (instance is None and _asked_for_fields(sys._getframe(1).f_globals)):
            raise AttributeError(f"type object {owner.__name__!r} has no attribute {name!r}")
        return self._function.__get__(instance, owner)


def _asked_for_fields(caller: dict[str, Any]) -> bool:
    """Return whether pydantic asks, to collect the fields of a new class: a method would become a field's default."""
    return caller.get("__name__") == _COLLECTS_FIELDS


class DictLikeModel(BaseModel):  # noqa: PLW1641 - pydantic gives a hash to models that are frozen
    """Declared fields are validated as in any model; every other keyword is kept as it is in `_data`.

    Attributes reach both. The mapping face (`[]`, `get`, `in`, `len`, iteration, `keys` and so on) covers `_data` only.
    `get`, `keys`, `values`, `items` and `to_dict` may be declared as fields; they are fields like others then.
    """

    # A slot, made on first use, and not a private attribute of pydantic: those cost every construction more than
    # the whole validation of a small model, and most models carry no extras.
    __slots__ = (_EXTRAS,)

    # A dump can always be validated again: it goes by name, not by alias, and pydantic's null for NaN is no float.
    model_config = ConfigDict(
        arbitrary_types_allowed=True,
        populate_by_name=True,
        ser_json_inf_nan="constants",
        ignored_types=(_MappingMethod,),
    )

    def __init__(self, **params: Any) -> None:
        known = type(self).__dict__.get(_KNOWN)
        if known is None:
            known = _known_keywords(type(self))
        if known.issuperset(params):
            # What BaseModel.__init__ does, without passing the keywords through another call.
            self.__pydantic_validator__.validate_python(params, self_instance=self)
            return
        private = self.__private_attributes__
        data = _checked(params.pop("_data", None))
        private_values = {key: params.pop(key) for key in list(params) if key in private}
        extras = {key: params.pop(key) for key in list(params) if key not in known}
        super().__init__(**params)
        for key, value in private_values.items():
            super().__setattr__(key, value)
        if data is not None:
            object.__setattr__(self, _EXTRAS, data.copy())
        # Added, not assigned: `model_post_init` may have set some already.
        self._data.update(extras)

    @property
    def _data(self) -> dict[str, Any]:
        try:
            extras: dict[str, Any] = object.__getattribute__(self, _EXTRAS)
        except AttributeError:
            extras = {}
            object.__setattr__(self, _EXTRAS, extras)
        return extras

    # Hidden from type checkers, as pydantic does: otherwise they would take any misspelt attribute for an extra one.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            cls = type(self)
            if name in cls.__private_attributes__ or name in cls.__pydantic_fields__ or name.startswith("__pydantic"):
                return super().__getattr__(name)
            try:
                return self._data[name]
            except KeyError:
                raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}") from None

        def __setattr__(self, name: str, value: Any) -> None:
            cls = type(self)
            if name in cls.__pydantic_fields__ or name in cls.__private_attributes__:
                super().__setattr__(name, value)
            elif name == "_data":
                object.__setattr__(self, _EXTRAS, value)
            elif isinstance(found := getattr(cls, name, None), property) and found.fset is not None:
                found.fset(self, value)
            else:
                self._data[name] = value

        def __delattr__(self, name: str) -> None:
            if name in self._data:
                del self._data[name]
            else:
                super().__delattr__(name)

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._data[key] = value

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def __len__(self) -> int:
        return len(self._data)

    @override
    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # the mapping face replaces pydantic's pairs
        return iter(self._data)

    def __bool__(self) -> bool:
        return True

    if TYPE_CHECKING:
        # Type checkers let a field of any type take the place of a property of type Any, but not that of a method.

        @property
        def get(self) -> Any: ...  # noqa: D102 - told below
        @property
        def keys(self) -> Any: ...  # noqa: D102
        @property
        def values(self) -> Any: ...  # noqa: D102
        @property
        def items(self) -> Any: ...  # noqa: D102
        @property
        def to_dict(self) -> Any: ...  # noqa: D102

    else:

        @_MappingMethod
        def get(self, key: str, default: Any = None) -> Any:
            """Return the extra value of that name, or the default."""
            return self._data.get(key, default)

        @_MappingMethod
        def keys(self) -> KeysView[str]:
            """Return the names of the extra values."""
            return self._data.keys()

        @_MappingMethod
        def values(self) -> ValuesView[Any]:
            """Return the extra values."""
            return self._data.values()

        @_MappingMethod
        def items(self) -> ItemsView[str, Any]:
            """Names and values of the extras."""
            return self._data.items()

        @_MappingMethod
        def to_dict(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            """Return the extras themselves, not a copy; arguments are accepted and ignored."""
            return self._data

    @model_serializer(mode="wrap")
    def custom_model_dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The declared fields and, if there are any, the extras under `_data`."""
        dumped: dict[str, Any] = handler(self)
        if self._data:
            dumped["_data"] = self._data
        return dumped

    @classmethod
    @override
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:
        """Build without validation; keywords that are not declared are kept as extras."""
        model = super().model_construct(_fields_set, **values)
        known = _known_keywords(cls)
        extras = {k: v for k, v in values.items() if k not in known and k not in cls.__private_attributes__}
        data = _checked(extras.pop("_data", None)) or {}
        model._data.update(data, **extras)
        return model

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, with its own extras; keys of `update` that are not declared change the extras."""
        fields = type(self).__pydantic_fields__
        declared = {key: value for key, value in (update or {}).items() if key in fields}
        copied = super().model_copy(update=declared, deep=deep)
        if deep and declared:  # the one case in which pydantic makes a deep copy without `__deepcopy__`
            object.__setattr__(copied, _EXTRAS, deepcopy(self._data))
        for key, value in (update or {}).items():
            if key not in fields:
                setattr(copied, key, value)
        return copied

    @override
    def __copy__(self) -> Self:
        copied = super().__copy__()
        if self._data:
            object.__setattr__(copied, _EXTRAS, self._data.copy())
        return copied

    @override
    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        memo = {} if memo is None else memo
        copied = super().__deepcopy__(memo)
        if self._data:
            object.__setattr__(copied, _EXTRAS, deepcopy(self._data, memo))
        return copied

    @override
    def __eq__(self, other: object) -> bool:
        equal = super().__eq__(other)
        return self._data == other._data if equal is True and isinstance(other, DictLikeModel) else equal

    @override
    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), _EXTRAS: self._data}

    @override
    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        object.__setattr__(self, _EXTRAS, state[_EXTRAS])


def _known_keywords(cls: type[DictLikeModel]) -> frozenset[str]:
    """The keywords that pydantic itself takes: names and aliases of fields. Kept on the class."""
    if not cls.__pydantic_complete__:
        # Generated aliases are known after that. The caller of `__init__` may have local names that annotations use.
        cls.model_rebuild(raise_errors=False, _parent_namespace_depth=4)
    known = set(cls.__pydantic_fields__)
    for field in cls.__pydantic_fields__.values():
        alias = field.validation_alias
        for choice in alias.choices if isinstance(alias, AliasChoices) else (field.alias, alias):
            first = choice.path[0] if isinstance(choice, AliasPath) else choice
            if isinstance(first, str):
                known.add(first)
    frozen = frozenset(known)
    setattr(cls, _KNOWN, frozen)
    return frozen


def _checked(data: Any) -> dict[str, Any] | None:
    if data is not None and not isinstance(data, dict):
        msg = f"_data must be a dict, not {type(data).__name__}."
        raise ValueError(msg)
    return data
