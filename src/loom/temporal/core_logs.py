"""What the core of the SDK logs. May import temporalio.

By itself it writes to the standard output, in colours, where commands have their results. A program that is Loom's own
lets it log as everything else does; other programs set up their SDK as they like.
"""

from __future__ import annotations

import logging
from functools import cache

from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

_LOGGER = "temporalio.core"


@cache
def log_with_the_rest() -> None:
    """Let the core log by Python's loggers, for all that connects from now on. Once is enough."""
    forwarding = LogForwardingConfig(logging.getLogger(_LOGGER), append_target_to_name=False)
    told = LoggingConfig(TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding)
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=told)), error_if_already_set=False)
