/** Light or dark: that of the system, unless chosen here. */

export type Theme = "system" | "light" | "dark";
const KEY = "loom-theme";

class ThemeState {
  value = $state<Theme>("system");

  load(): void {
    const stored = localStorage.getItem(KEY);
    this.#apply(stored === "light" || stored === "dark" ? stored : "system");
  }

  cycle(): void {
    this.set(this.value === "system" ? "light" : this.value === "light" ? "dark" : "system");
  }

  set(theme: Theme): void {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
    this.#apply(theme);
  }

  #apply(theme: Theme): void {
    this.value = theme;
    if (theme === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme;
  }
}

export const theme = new ThemeState();
