"""The reducer as a Temporal workflow: the only room that imports temporalio.

May import loom.runtime and what that may.
"""
