"""Orders as a Django project in one file, with any number of processes on one SQLite file.

    gunicorn --chdir examples/web --workers 2 django_app:application
    uvicorn django_app:asgi --app-dir examples/web --workers 2

One process works on the runs, the others stand by. A request may come to any of them. When the one that works ends,
another one takes over. Views are plain functions, under ASGI too.
"""

from __future__ import annotations

import json
import logging
import os
from functools import cache
from threading import Lock
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.http import require_GET, require_POST
from orders import Approval, Order

import loom

log = logging.getLogger("orders")
_opening = Lock()

# -- settings.py -------------------------------------------------------------------------------------------------------

settings.configure(
    SECRET_KEY=os.environ.get("SECRET_KEY", "only for this example"),
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
    LOGGING={
        "version": 1,
        "handlers": {"stderr": {"class": "logging.StreamHandler"}},
        "loggers": {name: {"handlers": ["stderr"], "level": "INFO"} for name in ("orders", "loom.durable")},
    },
    LOOM_URL=os.environ.get("LOOM_STORE", "sqlite:///orders.db"),
)
django.setup()

# -- runs.py -----------------------------------------------------------------------------------------------------------


def runtime() -> loom.SyncRuntime:
    """The runtime of this process. A process that was forked from one with a runtime gets its own."""
    with _opening:  # requests in several threads may ask first
        return _opened(os.getpid())


@cache
def _opened(pid: int) -> loom.SyncRuntime:
    opened = loom.connect_sync(settings.LOOM_URL, when_locked="standby")
    opened.register(Order(timeout=None), name="order")
    opened.open()
    log.info("Process %s is a %s for the runs.", pid, opened.role)
    return opened


# -- views.py ----------------------------------------------------------------------------------------------------------


@require_POST
def start(request: HttpRequest) -> JsonResponse:
    """Start a run. It is in the store before this is answered; the same `order_id` again is the same run."""
    order_id: Any = request.GET.get("order_id")  # Django has no types
    handler = runtime().start("order", json.loads(request.body), run_id=order_id)
    return JsonResponse({"run_id": handler.run_id}, status=202)


@require_GET
def show(_request: HttpRequest, run_id: str) -> JsonResponse:
    """Tell how far an order is, and its result."""
    try:
        info = runtime().get(run_id)
    except loom.RunNotFound as error:
        return JsonResponse({"error": str(error)}, status=404)
    result = runtime().handler(run_id).result() if info.status == "completed" else None
    return JsonResponse({"status": info.status, "waits": info.idle_since is not None, "result": result})


@require_POST
def approve(request: HttpRequest, run_id: str) -> JsonResponse:
    """Answer the question of an order, once."""
    try:
        runtime().send_event(run_id, Approval(**json.loads(request.body)), event_id="approval")
    except loom.RunNotFound as error:
        return JsonResponse({"error": str(error)}, status=404)
    return JsonResponse({}, status=202)


@require_GET
def events(_request: HttpRequest, run_id: str) -> StreamingHttpResponse:
    """Send the events of an order as they come, one JSON object per line. It goes on when another process works."""
    handler = runtime().handler(run_id)
    lines = (event.model_dump_json() + "\n" for event in handler.stream_events())
    return StreamingHttpResponse(lines, content_type="application/x-ndjson")


@require_GET
def role(_request: HttpRequest) -> JsonResponse:
    """Tell which process answers, and what it does: `worker`, or `standby`."""
    found: dict[str, Any] = {"pid": os.getpid(), "role": runtime().role}
    return JsonResponse(found)


# -- urls.py -----------------------------------------------------------------------------------------------------------

urlpatterns = [
    path("orders", start),
    path("orders/<str:run_id>", show),
    path("orders/<str:run_id>/approval", approve),
    path("orders/<str:run_id>/events", events),
    path("role", role),
]

# -- wsgi.py and asgi.py: what a server imports. It opens the runtime with the process; commands do without. -----------

application = get_wsgi_application()
asgi = get_asgi_application()
runtime()
