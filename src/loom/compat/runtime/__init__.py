"""`workflows.runtime`. Holds no names."""
