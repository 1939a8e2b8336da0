"""Loom measured side by side with its peers. Run it with `python -m bench` from the root of the repository."""
