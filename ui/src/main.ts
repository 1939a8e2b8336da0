import { mount } from "svelte";
import "./styles/tokens.css";
import "./styles/base.css";
import App from "./App.svelte";
import { loadSession } from "./api/client";
import { theme } from "./lib/theme.svelte";

const target = document.getElementById("app");
if (!target) throw new Error("The page has no place for the application.");
theme.load();
await loadSession();
mount(App, { target });
