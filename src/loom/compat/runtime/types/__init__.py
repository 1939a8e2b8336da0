"""`workflows.runtime.types`. Holds no names; may import nothing."""
