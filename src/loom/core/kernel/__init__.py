"""What every run has, whatever it was written in: workers, retries, timers, waiters, a store and a lifecycle. Pure."""
