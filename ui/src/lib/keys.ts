/** Whether a key press belongs to a field that one types into, and not to the page. */
export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target;
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Whether a dialog is open: keys of the page rest while one is. */
export function dialogOpen(): boolean {
  return document.querySelector("dialog[open]") !== null;
}
