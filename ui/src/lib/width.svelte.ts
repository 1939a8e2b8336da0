/** How wide the page is: on a narrow one rows of the list have two lines, on a middling one fewer columns. */
class Width {
  narrow = $state(false);
  middling = $state(false);

  constructor() {
    this.#watch("(max-width: 960px)", (holds) => (this.narrow = holds));
    this.#watch("(max-width: 1200px)", (holds) => (this.middling = holds));
  }

  #watch(text: string, take: (holds: boolean) => void): void {
    const query = matchMedia(text);
    take(query.matches);
    query.addEventListener("change", () => take(query.matches));
  }
}

export const width = new Width();
