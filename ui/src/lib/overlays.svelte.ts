/** Which overlay is open: the command palette, the help, or none. */
export type Overlay = "palette" | "help";

class Overlays {
  open = $state<Overlay | null>(null);

  show(overlay: Overlay): void {
    this.open = overlay;
  }

  close(): void {
    this.open = null;
  }
}

export const overlays = new Overlays();
