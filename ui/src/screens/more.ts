/** The screens that are not looked at first, in one file. */
import type { Component } from "svelte";
import Metrics from "./Metrics.svelte";
import Parked from "./Parked.svelte";
import Schedules from "./Schedules.svelte";
import Workers from "./Workers.svelte";
import Workflows from "./Workflows.svelte";

export const SCREENS: Record<string, Component> = { metrics: Metrics, parked: Parked, schedules: Schedules, workers: Workers, workflows: Workflows };
