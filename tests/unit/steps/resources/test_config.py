from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ValidationError

from loom.steps.resources import (
    Resource,
    ResourceConfig,
    ResourceDefinition,
    ResourceManager,
    check_resource_configs,
    check_resources,
)


class Threshold(BaseModel):
    limit: float


class Looser(BaseModel):
    limit: int = 0
    name: str = "none"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"limit": 1, "deep": {"er": {"limit": 2}, "text": "no"}}), encoding="utf-8")
    return path


def step_configs(**parameters: Any) -> dict[str, Any]:
    definitions = [
        ResourceDefinition(name=name, resource=resource, type_annotation=wanted)
        for name, (wanted, resource) in parameters.items()
    ]
    return {"classify": SimpleNamespace(resources=definitions)}


async def test_a_file_becomes_the_annotated_model(file: Path) -> None:
    manager = ResourceManager()
    value = await manager.get(ResourceConfig(str(file)), Threshold)

    assert value == Threshold(limit=1)
    assert await manager.get(ResourceConfig(str(file)), Threshold) is value


async def test_a_path_selects_an_object_in_the_file(file: Path) -> None:
    config = ResourceConfig(str(file), "deep.er", label="Limits", description="of everything")

    assert await ResourceManager().get(config, Threshold) == Threshold(limit=2)
    assert config.load() == {"limit": 2}
    assert (config.name, config.label, config.description) == (f"{file}.deep.er", "Limits", "of everything")


async def test_one_declaration_may_serve_two_models(file: Path) -> None:
    config = ResourceConfig(str(file))
    manager = ResourceManager()

    assert await manager.get(config, Threshold) == Threshold(limit=1)
    assert await manager.get(config, Looser) == Looser(limit=1)
    assert await manager.get(config, dict[str, Any]) == config.load()


def test_the_file_is_looked_for_when_it_is_needed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ResourceConfig("settings.json")
    with pytest.raises(FileNotFoundError, match=r"No such file: settings\.json"):
        _ = config.config_file
    monkeypatch.chdir(file.parent)

    assert config.config_file == str(file.resolve())


def test_only_json_files_are_read() -> None:
    with pytest.raises(ValueError, match="Only JSON files can be used to load Pydantic-based resources"):
        ResourceConfig("settings.yaml")


@pytest.mark.parametrize("path", ["deep.text", "deep.missing", "limit.x"])
def test_a_path_that_leads_to_no_object_is_named_with_its_file(file: Path, path: str) -> None:
    with pytest.raises(
        ValueError, match=r"Expected dictionary for configuration from .*settings\.json at path "
    ) as error:
        ResourceConfig(str(file), path).load()

    assert f"at path {path.removesuffix('.x')}, got: " in str(error.value)


def test_a_file_that_is_no_json_is_named(file: Path) -> None:
    file.write_text("{", encoding="utf-8")

    with pytest.raises(ValueError, match=r"settings\.json is not valid JSON: "):
        ResourceConfig(str(file)).load()


def test_a_file_that_does_not_fit_the_model_says_which(file: Path) -> None:
    config = ResourceConfig(str(file), "deep")
    config.set_type_annotation(Threshold)
    with pytest.raises(ValidationError) as error:
        config.call()

    assert error.value.__notes__ == [f"while reading {file.resolve()} at path deep"]


def test_a_config_without_a_model_cannot_be_made(file: Path) -> None:
    with pytest.raises(ValueError, match="Class factory should be set to a BaseModel subclass before calling"):
        ResourceConfig(str(file)).call()


def test_the_check_reads_configs_of_steps_and_of_their_factories(file: Path) -> None:
    def make(config: Any) -> Any:
        return config

    make.__annotations__["config"] = Annotated[Threshold, ResourceConfig("nested.json")]
    complaints = check_resource_configs(
        step_configs(
            good=(Threshold, ResourceConfig(str(file))),
            bad=(Threshold, ResourceConfig(str(file), "deep")),
            gone=(Threshold, ResourceConfig("gone.json")),
            made=(Any, Resource(make)),
        )
    )

    assert len(complaints) == 3
    assert complaints[0].startswith(f"In step 'classify', parameter 'bad': {file.resolve()} at path deep: 1 validation")
    assert complaints[1] == "In step 'classify', parameter 'gone': No such file: gone.json"
    name = Resource(make).name
    assert complaints[2] == (f"In step 'classify', parameter 'made' ({name} -> nested.json): No such file: nested.json")


def test_the_check_survives_cycles_and_broken_validators(file: Path) -> None:
    class Broken(BaseModel):
        def __init__(self, **data: Any) -> None:
            raise RuntimeError("boom")

    def make(it: Any) -> Any:
        return it

    make.__annotations__["it"] = Annotated[Any, Resource(make)]

    assert check_resource_configs(
        step_configs(cycle=(Any, Resource(make)), broken=(Broken, ResourceConfig(str(file))))
    ) == ["In step 'classify', parameter 'broken': boom"]


async def test_making_all_resources_gives_the_complaints(file: Path) -> None:
    def fail() -> None:
        raise OSError("no key")

    manager = ResourceManager()
    complaints = await check_resources(
        step_configs(good=(Threshold, ResourceConfig(str(file))), bad=(Any, Resource(fail))), manager
    )

    assert complaints == ["In step 'classify', parameter 'bad': no key"]
    assert manager.get_all() == {str(file): Threshold(limit=1)}
