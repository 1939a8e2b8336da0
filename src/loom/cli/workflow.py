"""The group `loom workflow`. May import the commands beside it."""

from __future__ import annotations

import click

from loom.cli import acting, copying, looking


@click.group()
def workflow() -> None:
    """Look at runs and tell them things, in a store or on a server."""


for _command in (
    looking.list_runs,
    looking.status,
    looking.events,
    looking.history,
    looking.replay,
    acting.start,
    acting.send,
    acting.cancel,
    acting.pause,
    acting.resume,
    acting.retry,
    copying.fork,
    copying.export_run,
    copying.import_run,
    copying.purge,
):
    workflow.add_command(_command)
