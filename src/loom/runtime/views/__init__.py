"""What a run did, over time: lanes of bars, counts per step or action, and the rounds of its loops.

All of it is made of the run's journal, from the first tick to the last, once: a later look goes on where the one before
has stopped. `RunTraces` keeps what was made.
"""
