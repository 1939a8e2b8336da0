"""`workflows.runtime.types`. Holds no names."""
