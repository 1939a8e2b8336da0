/** How well a text fits what somebody types, for lists that one chooses from. */

/**
 * Rate a text for a query: 0 does not fit, more is better. Each word of the query must be found. The beginning of the
 * text counts most, then the beginning of a word, then any place, then its letters in order. Of `more`, other words that
 * it goes by, only beginnings count.
 */
export function rank(query: string, text: string, more = ""): number {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return 1;
  const hay = text.toLowerCase();
  const names = more.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const rate = rateWord(word, hay) || (rateWord(word, names) >= 80 ? 30 : 0);
    if (!rate) return 0;
    sum += rate;
  }
  return sum / words.length;
}

function rateWord(word: string, hay: string): number {
  const at = hay.indexOf(word);
  if (at === 0) return 100;
  for (let from = at; from > 0; from = hay.indexOf(word, from + 1)) if (!/[\p{L}\p{N}]/u.test(hay[from - 1] as string)) return 80;
  if (at > 0) return 50;
  return word.length > 1 && lettersInOrder(word, hay) ? 10 : 0;
}

function lettersInOrder(word: string, hay: string): boolean {
  let from = 0;
  for (const letter of word) {
    from = hay.indexOf(letter, from) + 1;
    if (!from) return false;
  }
  return true;
}

/** Keep what fits, the best first; what fits alike stays in order. */
export function ranked<T>(query: string, items: readonly T[], textOf: (item: T) => string, moreOf: (item: T) => string = () => ""): T[] {
  return items
    .map((item) => ({ item, rate: rank(query, textOf(item), moreOf(item)) }))
    .filter((each) => each.rate > 0)
    .sort((a, b) => b.rate - a.rate)
    .map((each) => each.item);
}
