"""`workflows.context.utils`. Re-exports only."""

from __future__ import annotations

from loom.steps.compat_names import get_qualified_name, import_module_from_qualified_name

__all__ = ["get_qualified_name", "import_module_from_qualified_name"]
