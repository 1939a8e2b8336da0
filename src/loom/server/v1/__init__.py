"""Loom's own routes, below `/v1`. Each module declares its own with `@route`."""
