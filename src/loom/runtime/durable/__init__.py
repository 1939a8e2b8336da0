"""The durable runtime: runs that live in a store, and in memory only while something happens to them.

May import loom.core, loom.effects, loom.steps, loom.store and the rest of loom.runtime.
"""
