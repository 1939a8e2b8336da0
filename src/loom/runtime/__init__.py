"""Runtimes: the asyncio control loop, its adapters, and the runtime in memory. May import effects, steps and core."""
