"""Factories of another module, whose annotations are text and name what that module has under common names."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Annotated

from loom.steps.resources import Resource


class Client:
    """The class that the annotations below mean."""

    origin = "foreign"


def make_client() -> Client:
    """The factory that the annotations below mean."""
    return Client()


def plain(client: Annotated[Client, Resource(make_client)]) -> str:
    """A function."""
    return client.origin


async def asynchronous(client: Annotated[Client, Resource(make_client)]) -> str:
    """A coroutine function."""
    return client.origin


@lru_cache
def decorated(client: Annotated[Client, Resource(make_client)]) -> str:
    """A function behind a decorator that has no globals of its own."""
    return client.origin


class Maker:
    """A method, a callable object and a class."""

    def __init__(self, client: Annotated[Client, Resource(make_client)]) -> None:
        self.client = client

    def __str__(self) -> str:
        return self.client.origin

    def method(self, client: Annotated[Client, Resource(make_client)]) -> str:
        """A bound method."""
        return client.origin

    def __call__(self, client: Annotated[Client, Resource(make_client)]) -> str:
        return client.origin


bound = Maker(Client()).method
callable_object = Maker(Client())
partially = partial(plain)
