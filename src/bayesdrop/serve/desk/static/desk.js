// Keys, the lease's clock and the help of the desk. Everything works without this file too, by buttons.
"use strict";

(() => {
  const main = document.querySelector("main[data-page=queue]");
  const help = document.getElementById("help");
  let sent = false;

  function openHelp() {
    if (help && !help.open) help.showModal();
  }

  function pressed(event) {
    if (!main || event.ctrlKey || event.metaKey || event.altKey || (help && help.open)) return;
    const field = event.target;
    if (field instanceof HTMLTextAreaElement) {
      if (event.key === "Escape") field.blur();
      return;
    }
    // Digits belong to a number that is being typed; letters other than e do not.
    const typing = field instanceof HTMLInputElement && field.type === "number";
    if (typing && !/^[a-df-z?]$/.test(event.key)) return;
    if (event.key === "?") {
      event.preventDefault();
      openHelp();
      return;
    }
    if (event.key === "n") {
      const note = document.getElementById("note");
      if (note) {
        event.preventDefault();
        note.focus();
      }
      return;
    }
    if (event.key === "m") {
      const thoughts = main.querySelector("section.model details");
      if (thoughts) thoughts.open = !thoughts.open;
      event.preventDefault();
      return;
    }
    const wanted = [...main.querySelectorAll("button[data-key]")].find((b) => b.dataset.key === event.key);
    if (!wanted || event.repeat) return;
    event.preventDefault();
    wanted.click();
  }

  // A second press before the next page is there must not be sent, and never reaches the next item.
  function submitted(event) {
    if (!(event.target instanceof HTMLFormElement) || event.target.method === "dialog") return;
    if (sent) {
      event.preventDefault();
      return;
    }
    sent = true;
    document.body.classList.add("busy");
  }

  // A file goes to the same address that programs use; what comes back is shown as a text, never as HTML.
  async function bringIn(event) {
    event.preventDefault();
    event.stopPropagation();
    const form = event.target;
    const said = document.getElementById("import-said");
    const file = document.getElementById("file").files[0];
    if (!file || sent) return;
    sent = true;
    document.body.classList.add("busy");
    said.className = "flash";
    said.textContent = `Reading ${file.name} ...`;
    try {
      const kind = file.name.toLowerCase().endsWith(".csv") ? "text/csv" : "application/json";
      const headers = { "content-type": kind, "x-csrf-token": form.dataset.csrf };
      const answer = await fetch("/v1/import", { method: "POST", headers, body: file });
      const found = await answer.json();
      said.className = answer.ok ? "flash good" : "flash bad";
      said.textContent = answer.ok
        ? `${found.items.length} items are in the queue, ${found.labels} of them with a label.`
        : `Nothing was brought in: ${found.error}`;
    } catch (error) {
      said.className = "flash bad";
      said.textContent = `The server could not be reached: ${error.message}`;
    }
    sent = false;
    document.body.classList.remove("busy");
  }

  function startClock() {
    const form = document.getElementById("label-form");
    const lease = document.getElementById("lease");
    if (!form || !lease) return;
    const end = performance.now() + 1000 * Number(form.dataset.seconds);
    const shown = lease.querySelector("span");
    const tick = () => {
      const left = Math.max(0, Math.round((end - performance.now()) / 1000));
      const minutes = Math.floor(left / 60);
      shown.textContent = `${minutes}:${String(left % 60).padStart(2, "0")}`;
      lease.classList.toggle("soon", left <= 30);
      if (left === 0) {
        lease.textContent = "Your time for this item is over; it went back to the queue. ";
        const again = document.createElement("a");
        again.href = "/desk";
        again.textContent = "Get the next one";
        lease.append(again);
        clearInterval(timer);
      }
    };
    const timer = setInterval(tick, 1000);
    tick();
  }

  const imports = document.getElementById("import-form");
  if (imports) imports.addEventListener("submit", bringIn);
  document.addEventListener("keydown", pressed);
  document.addEventListener("submit", submitted);
  // Back from the history: the page may be old, but its forms work again.
  window.addEventListener("pageshow", () => {
    sent = false;
    document.body.classList.remove("busy");
  });
  for (const button of document.querySelectorAll("[data-help]")) button.addEventListener("click", openHelp);
  startClock();
})();
