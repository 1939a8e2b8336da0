"""Context dicts: a run as a JSON-able dict and back, in the form of llama-index-workflows.

The dict is version 2 of that form, with one key more: `loom` holds what the form has no place for. Versions 0 and 1 are
read as well. May import loom.core and, of loom.steps, events, serializers, the registry, streams and the planner.
"""

from __future__ import annotations

from loom.steps.context_dict.read import context_from_dict
from loom.steps.context_dict.waiter_ids import default_waiter_id
from loom.steps.context_dict.write import context_to_dict

__all__ = ["context_from_dict", "context_to_dict", "default_waiter_id"]
