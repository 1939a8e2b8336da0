"""The private messages of Temporal's SDK: the only module of Loom that imports `temporalio.bridge`.

`temporalio.bridge` calls itself unstable, and a `WorkflowInstance` cannot do without it: activations come in, commands
and completions go out as its messages. What differs between the supported versions of the SDK is handled here too, so
that a new version needs a look at this file alone. A tidy test checks that no other module imports it.
"""

from __future__ import annotations

from typing import Any

from temporalio.bridge.proto.child_workflow.child_workflow_pb2 import ParentClosePolicy
from temporalio.bridge.proto.workflow_activation import workflow_activation_pb2 as activations
from temporalio.bridge.proto.workflow_commands import workflow_commands_pb2 as messages
from temporalio.bridge.proto.workflow_completion import workflow_completion_pb2 as completions

__all__ = ["ABANDON_CHILDREN", "activations", "completions", "messages", "upserted_attributes"]

ABANDON_CHILDREN = ParentClosePolicy.PARENT_CLOSE_POLICY_ABANDON
"""The policy under which a child lives on when an execution of its parent closes."""


def upserted_attributes(command: messages.WorkflowCommand) -> Any:
    """Return the map of search attributes that a command upserts, by name; it is empty in a new command.

    Older versions of the SDK have a plain map where newer ones have a message with one.
    """
    attributes = command.upsert_workflow_search_attributes.search_attributes
    return getattr(attributes, "indexed_fields", attributes)
