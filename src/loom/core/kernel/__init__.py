"""What every run has, whatever it was written in: workers, retries, timers, waiters, a store and a lifecycle. Pure.

Internal: only the core imports it, and a contract of import-linter says so. What other rooms need is in `loom.core`.
"""
