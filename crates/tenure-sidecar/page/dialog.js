// One dialog for everything that wants a yes first.

import { plain } from "./words.js";

const dialog = document.getElementById("ask");
const part = (name) => document.getElementById(`ask-${name}`);

/**
 * Asks, and on yes does `act`, which says in words what came of it. The dialog stays until the
 * outcome has been read.
 */
export function ask({ title, text, yes, act }) {
  return open({ title, text, yes, wants: null, act: async () => act() });
}

/** Asks for how long to pause; `act` is told in milliseconds. */
export function askPause({ title, text, act }) {
  return open({ title, text, yes: "Pause", wants: "length", act: async () => act(Number(part("length").value)) });
}

/** Asks for a token until `use` accepts it. */
export function askToken(use) {
  return open({
    title: "A token is needed",
    text: "This sidecar shows elections only to those who know its token. It is kept in this tab alone.",
    yes: "Continue",
    wants: "token",
    act: async () => {
      use(part("input").value.trim());
      return { done: true, text: "", close: true };
    },
  });
}

function open({ title, text, yes, wants, act }) {
  const secret = wants === "token";
  part("title").textContent = plain(title);
  part("text").textContent = plain(text);
  part("field").hidden = !secret;
  part("length-field").hidden = wants !== "length";
  part("input").value = "";
  part("outcome").hidden = true;
  part("no").textContent = "Cancel";
  part("no").hidden = secret;
  const button = part("yes");
  button.textContent = yes;
  button.hidden = false;
  button.disabled = false;
  return new Promise((done) => {
    const pressed = async (event) => {
      event.preventDefault();
      button.disabled = true;
      button.textContent = "Asking…";
      const outcome = await act().catch((error) => ({ done: false, text: error.message }));
      if (outcome.close) return dialog.close("yes");
      button.hidden = true;
      part("length-field").hidden = true;
      part("no").textContent = "Close";
      part("no").focus();
      part("outcome").hidden = false;
      part("outcome").dataset.done = String(outcome.done);
      part("outcome").textContent = plain(outcome.text);
    };
    button.onclick = pressed;
    dialog.oncancel = (event) => { if (secret) event.preventDefault(); };
    dialog.onclose = () => done();
    if (!dialog.open) dialog.showModal();
    (secret ? part("input") : part("no")).focus();
  });
}
