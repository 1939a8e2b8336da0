"""`workflows.runtime`. Holds no names; may import nothing."""
