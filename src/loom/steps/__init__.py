"""Python step classes: events, decorators, workflows, contexts and the planner that routes events to steps."""
