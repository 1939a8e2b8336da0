/** Whether the page is as narrow as a phone: rows then have two lines. The width is that of the style sheets. */
class Narrow {
  is = $state(false);

  constructor() {
    const query = matchMedia("(max-width: 760px)");
    this.is = query.matches;
    query.addEventListener("change", () => (this.is = query.matches));
  }
}

export const narrow = new Narrow();
