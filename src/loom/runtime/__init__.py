"""Runtimes: the asyncio control loop, its adapters, and the runtime in memory."""
