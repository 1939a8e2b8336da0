"""The values of a project: parameters, app settings and connections, with the secrets that these name.

Names are known when the project is loaded. Values are read when a run starts, and connections when an action calls:
settings come from the environment, or else from `local.settings.json`.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from loom.expressions import ExpressionError
from loom.flows.beside import PARAMETER, SETTING, calls_of, evaluated, find_name, names_of
from loom.flows.triggers import fits
from loom.runtime.flow import Given

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom.flows.beside import Beside

_log = logging.getLogger("loom.project")

_SECRET_LENGTH = 4
"""Shortest text that is hidden in errors: shorter ones stand in every other word."""


class AppSettings:
    """The app settings of one project."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})
        self.named: set[str] = set()
        """Names, in lower case, that files of the project name. No other is read: the environment has secrets too."""

    def know(self, names: Iterable[str]) -> None:
        """Let these settings be read."""
        self.named.update(name.lower() for name in names)

    def find(self, name: str) -> str | None:
        """Return a setting as it is now: of the environment, else of the file, else None. Case does not matter."""
        if name.lower() not in self.named:
            return None
        for values in (os.environ, self._values):
            found = find_name(values, name)
            if found is not None:
                return values[found]
        return None

    def read(self, names: Iterable[str]) -> dict[str, str]:
        """Return those of the settings that there are, by these names."""
        found = ((name, self.find(name)) for name in names)
        return {name: value for name, value in found if value is not None}


class ProjectParameter(Struct, frozen=True):
    """A parameter that a project gives its flows."""

    name: str
    type: str
    """As the file has it; empty: any."""
    value: Any
    """May have expressions that read app settings."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of the app settings in its value."""
        return names_of(calls_of(SETTING, self.value))

    @property
    def shown_type(self) -> str:
        """The type that documents get: what is made of settings is secret, whatever the file says."""
        is_open = not self.type.lower().startswith("secure")
        return f"Secure{self.type}" if is_open and calls_of(SETTING, self.value) else self.type

    def current(self, settings: AppSettings) -> Any:
        """Return its value with the settings as they are now. Raises `ExpressionError`."""
        names = self.settings
        found = evaluated(self.value, settings.read(names)) if has_expressions(self.value) else self.value
        return _fitted(self.type.lower(), found) if names else found


def has_expressions(value: Any) -> bool:
    """Tell whether a JSON value has a text that may be an expression."""
    if isinstance(value, dict):
        return any(has_expressions(key) or has_expressions(item) for key, item in value.items())
    if isinstance(value, list):
        return any(map(has_expressions, value))
    return isinstance(value, str) and "@" in value


def _fitted(kind: str, value: Any) -> Any:
    """Read a setting as the type says: settings are texts, also where a number is meant."""
    if not isinstance(value, str) or fits(kind, value):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if fits(kind, found) else value


class ProjectValues:
    """What a project gives the runs of its flows: see `Surroundings`."""

    def __init__(
        self,
        settings: AppSettings,
        parameters: Mapping[str, ProjectParameter] | None = None,
        connections: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self.settings = settings
        self.parameters = dict(parameters or {})
        """By name in lower case."""
        self.connections = dict(connections or {})

    def given(self, beside: Beside) -> Given:
        """Return the values of these names, as they are now."""
        wanted = [self.parameters.get(name.lower()) for name in beside.parameters]
        parameters = {each.name: self._current(each) for each in wanted if each is not None}
        settings = self.settings.read(beside.settings)
        missing = [name for name in beside.settings if name not in settings]
        if missing:
            _log.warning("A run starts without the app settings %s, which are null in it.", ", ".join(missing))
        return Given(parameters, settings)

    def _current(self, parameter: ProjectParameter) -> Any:
        try:
            return parameter.current(self.settings)
        except ExpressionError:
            # What it says may repeat a secret.
            why = f"the parameter '{parameter.name}' of its project cannot be evaluated with the settings as they are"
            raise ExpressionError(why) from None

    def connection(self, name: str) -> dict[str, Any] | None:
        """Return a connection, with its secrets as they are now; None if there is none."""
        data = self._connection(name)
        if data is None:
            return None
        parameters = {each.name: each.current(self.settings) for each in self._parameters_in(data)}
        settings = self.settings.read(names_of(calls_of(SETTING, data)))
        resolved: dict[str, Any] = evaluated(data, settings, parameters)
        return resolved

    def secrets(self, name: str) -> tuple[str, ...]:
        """List the settings in a connection, as they are now, longest first: errors must not repeat them."""
        data = self._connection(name)
        if data is None:
            return ()
        names = [*names_of(calls_of(SETTING, data))]
        for parameter in self._parameters_in(data):
            names += parameter.settings
        texts = {text for text in self.settings.read(names).values() if len(text) >= _SECRET_LENGTH}
        return tuple(sorted(texts, key=lambda text: (-len(text), text)))

    def _connection(self, name: str) -> dict[str, Any] | None:
        found = find_name(self.connections, name)
        return self.connections[found] if found is not None else None

    def _parameters_in(self, data: dict[str, Any]) -> list[ProjectParameter]:
        named = (self.parameters.get(each.lower()) for each in names_of(calls_of(PARAMETER, data)))
        return [each for each in named if each is not None]
