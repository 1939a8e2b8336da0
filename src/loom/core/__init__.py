"""The engine: a pure reducer, its kernel and its sans-IO run. Imports nothing else of Loom."""
