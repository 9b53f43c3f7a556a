"use strict";
const live = document.getElementById("live");
const state = document.getElementById("state");
const usual = state.textContent;
const source = new EventSource(document.getElementById("contents").dataset.events);

// Scroll positions and the keyboard focus are preserved.
function show(html) {
    const tables = () => [...live.querySelectorAll(".table")];
    const before = tables().map((table) => [table.scrollLeft, table === document.activeElement]);
    live.innerHTML = html;
    tables().forEach((table, index) => {
        const [left, focused] = before[index] ?? [0, false];
        table.scrollLeft = left;
        if (focused) table.focus({ preventScroll: true });
    });
}

source.addEventListener("run", (event) => show(event.data));
source.addEventListener("end", () => { source.close(); location.reload(); });
source.addEventListener("open", () => { state.textContent = usual; });
source.addEventListener("error", () => { state.textContent = "vtax ui is not responding. This page shows its last update."; });
