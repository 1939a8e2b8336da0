// Goes before the theme's search worker, and makes its queries of what people ask.
//
// The theme looks for words that begin with each word of the query, "how do I" among them, and counts a word in a
// heading a thousand times. So every question finds whatever has "do" or "I" in many headings. Here small words are left
// out, whole words are looked for (and stemmed, as the index is), and a heading counts ten times.

const SMALL = new Set(
  ("a an and any are as at be been but by can could did do does for from get had has have he her him his how i if in " +
    "into is it its may me my no not of on or our shall she should so than that the their them then there these they " +
    "this those to up us use want was we were what when where which while who why will with would you your").split(" "),
);
const TITLE_BOOST = 10;
const SETUP = 0;
const QUERY = 2;

addEventListener("message", (event) => {
  const message = event.data;
  if (message.type === SETUP) message.data.config.fields.title.boost = TITLE_BOOST;
  if (message.type === QUERY) message.data = words(message.data);
});

/** Keep a query in the search's own notation; of other text keep the words that mean something. */
function words(text) {
  if (/["+~^:*]/.test(text)) return text;
  const all = text.toLowerCase().split(/[^\p{L}\p{N}_.-]+/u).map((word) => word.replace(/[.-]+$/, "")).filter(Boolean);
  const kept = all.filter((word) => !SMALL.has(word));
  if (kept.length === 0) return text;
  const whole = [...new Set(kept.map((word) => lunr.stemmer(new lunr.Token(word)).toString()))].map((stem) => `${stem}^1`);
  const isTyping = /[\p{L}\p{N}_]$/u.test(text);
  return [...whole, ...(isTyping ? kept.slice(-1) : [])].join(" ");
}

