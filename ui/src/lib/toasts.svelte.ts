/** Short messages about what was done, read out by screen readers. */

export interface Toast {
  id: number;
  kind: "ok" | "bad" | "info";
  text: string;
  link?: { href: string; text: string };
}

class Toasts {
  items = $state<Toast[]>([]);
  #next = 1;

  show(kind: Toast["kind"], text: string, link?: Toast["link"]): void {
    const id = this.#next++;
    this.items.push({ id, kind, text, ...(link ? { link } : {}) });
    // An error stays until it is closed: it may be read later.
    if (kind !== "bad") setTimeout(() => this.close(id), link ? 10_000 : 5_000);
  }

  close(id: number): void {
    this.items = this.items.filter((toast) => toast.id !== id);
  }
}

export const toasts = new Toasts();
