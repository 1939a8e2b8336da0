"""Resources that are read from JSON files into the models that steps annotate."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from loom.steps.resource_descriptors import Dependency
    from loom.steps.resources import ResourceManager


class ConfigResource:
    """A JSON file, or one object in it, as the model that the annotation names."""

    cache = True

    def __init__(
        self,
        config_file: str,
        path_selector: str | None = None,
        label: str | None = None,
        description: str | None = None,
        cls_factory: Any = None,
    ) -> None:
        if Path(config_file).suffix != ".json":
            raise ValueError("Only JSON files can be used to load Pydantic-based resources.")
        self._declared_file = config_file
        self._found_file: str | None = None
        self.path_selector = path_selector
        self.label = label
        self.description = description
        self.cls_factory = cls_factory

    @property
    def name(self) -> str:
        """The file as it was declared, with the path into it."""
        return self._declared_file if self.path_selector is None else f"{self._declared_file}.{self.path_selector}"

    @property
    def config_file(self) -> str:
        """The absolute path of the file, which must exist when it is first asked for."""
        if self._found_file is None:
            path = Path(self._declared_file)
            if not path.is_file():
                raise FileNotFoundError(f"No such file: {self._declared_file}")
            self._found_file = str(path.resolve())
        return self._found_file

    @property
    def identity(self) -> object:
        """Return what makes two configs the same one: file, path and model."""
        return (os.path.abspath(self._declared_file), self.path_selector, id(self.cls_factory))

    def set_type_annotation(self, type_annotation: Any) -> None:
        """Take the annotated type for the model, unless there is one already."""
        if self.cls_factory is None:
            self.cls_factory = type_annotation

    def bound_to(self, type_annotation: Any) -> ConfigResource:
        """Return this config for that model: one declaration may be annotated with several."""
        if type_annotation is None or self.cls_factory is type_annotation:
            return self
        return ConfigResource(self._declared_file, self.path_selector, self.label, self.description, type_annotation)

    def set_localns(self, localns: dict[str, Any] | None) -> None:
        """A file has no annotations to read."""

    def get_dependencies(self) -> list[Dependency]:
        """A file depends on nothing."""
        return []

    def load(self) -> Any:
        """Read the file and return the data at the path, not yet validated."""
        import json

        file = self.config_file
        try:
            data = json.loads(Path(file).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"Configuration file {file} is not valid JSON: {error}") from error
        walked: list[str] = []
        for key in self.path_selector.split(".") if self.path_selector is not None else []:
            walked.append(key)
            data = data.get(key) if isinstance(data, dict) else None
            if not isinstance(data, dict):
                raise ValueError(
                    f"Expected dictionary for configuration from {file} at path {'.'.join(walked)}, got: {type(data)}"
                )
        return data

    def call(self) -> Any:
        """Read the file into the model; a `ValidationError` carries a note with the file and the path."""
        if self.cls_factory is None:
            raise ValueError("Class factory should be set to a BaseModel subclass before calling")
        data = self.load()
        try:
            if isinstance(self.cls_factory, type) and issubclass(self.cls_factory, BaseModel):
                return self.cls_factory.model_validate(data)
            from pydantic import TypeAdapter

            return TypeAdapter(self.cls_factory).validate_python(data)
        except ValidationError as error:
            error.add_note(f"while reading {self._place()}")
            raise

    def problem(self) -> str | None:
        """Say what is wrong with the file or its content, or None; for the validation of a workflow."""
        try:
            self.call()
        except ValidationError as error:
            return f"{self._place()}: {error}"
        except Exception as error:  # noqa: BLE001 - validators are foreign code; every failure is a complaint
            return str(error)
        return None

    async def resolve(self, manager: ResourceManager) -> Any:  # noqa: ARG002 - the protocol's signature
        """Read the file into the model."""
        return self.call()

    def _place(self) -> str:
        return self.config_file if self.path_selector is None else f"{self.config_file} at path {self.path_selector}"


def ResourceConfig(  # noqa: N802 - a public name
    config_file: str,
    path_selector: str | None = None,
    label: str | None = None,
    description: str | None = None,
) -> ConfigResource:
    """Declare a config for `Annotated[Model, ResourceConfig("file.json")]`.

    `path_selector` names an object inside the file by dotted keys; `label` and `description` are for drawings.
    """
    return ConfigResource(config_file, path_selector, label, description)
