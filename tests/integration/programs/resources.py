"""Resources: cached and not, async, depending on each other, and read from a config file."""

# ruff: noqa: T201 - what a program prints is what it is judged by

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel
from workflows import Workflow, step
from workflows.errors import WorkflowValidationError
from workflows.events import Event, StartEvent, StopEvent
from workflows.resource import Resource, ResourceConfig

MADE: list[str] = []


class Settings(BaseModel):
    greeting: str
    times: int = 1


class Client:
    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0


async def make_client() -> Client:
    MADE.append("client")
    return Client("client")


def make_token() -> str:
    MADE.append("token")
    return f"token {MADE.count('token')}"


def make_service(client: Annotated[Client, Resource(make_client)]) -> str:
    MADE.append("service")
    return f"service on {client.name}"


class Next(Event):
    pass


config = Path(tempfile.mkdtemp()) / "settings.json"
config.write_text(json.dumps({"app": {"greeting": "hello", "times": 2}}))


class WithResources(Workflow):
    @step
    async def first(
        self,
        ev: StartEvent,
        client: Annotated[Client, Resource(make_client)],
        token: Annotated[str, Resource(make_token, cache=False)],
    ) -> Next:
        client.calls += 1
        print(token)
        return Next()

    @step
    async def second(
        self,
        ev: Next,
        client: Annotated[Client, Resource(make_client)],
        token: Annotated[str, Resource(make_token, cache=False)],
        service: Annotated[str, Resource(make_service)],
        settings: Annotated[Settings, ResourceConfig(config_file=str(config), path_selector="app")],
    ) -> StopEvent:
        client.calls += 1
        print(token, service)
        return StopEvent(result=(client.calls, settings.greeting * settings.times))


class Misconfigured(Workflow):
    @step
    async def only(
        self, ev: StartEvent, settings: Annotated[Settings, ResourceConfig(config_file=str(config))]
    ) -> StopEvent:
        return StopEvent(result=settings.greeting)


async def main() -> None:
    workflow = WithResources(timeout=10)
    print(await workflow.run())
    print(await workflow.run())
    print(MADE)
    try:
        Misconfigured().validate()
    except WorkflowValidationError as error:
        print(type(error).__name__, str(error).splitlines()[0])


asyncio.run(main())
