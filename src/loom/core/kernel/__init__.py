"""What every run has, whichever way it was written: workers, waiters, effects of bodies and a lifecycle.

Internal: only the core imports it, and a contract of import-linter says so. What other rooms need is in `loom.core`.
"""
