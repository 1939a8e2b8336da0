"""Loom's own routes, below `/v1`. Each module has its routes as `ROUTES`. May import the rest of loom.server."""
