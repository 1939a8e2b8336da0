"""Loom on a Temporal cluster: the reducer as a Temporal workflow, bodies of steps as activities.

`loom.connect("temporal://...")` gives a `TemporalRuntime` over a `TemporalStore`; `LoomPlugin` adds Loom workflows to a
worker of another application. Below these are three rooms that do not import each other:

- `client`: what a process asks of the cluster: start, send, read, list, purge, entries.
- `workflow`: how an activation becomes ticks, and how the reducer's commands become Temporal's.
- `activity`: how a body runs in an activity, with heartbeats, effects and the run's store.

They share names, payloads, settings and calls (`rpc`). `bridge` alone imports the private part of the SDK. No other
package of Loom imports temporalio.
"""
