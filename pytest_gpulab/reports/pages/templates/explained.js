"use strict";
// Steps through the rows of each figure and highlights the source line; without this script all rows are shown.
// The first figure comes last, so that the source shows its line.
for (const figure of [...document.querySelectorAll("section.figure")].reverse()) {
  const rows = [...figure.querySelectorAll(".row")];
  const captions = [...figure.querySelectorAll(".captions li")];
  const slider = figure.querySelector("input");
  const source = figure.closest(".explained").querySelector(".source");
  const show = (step) => {
    const now = Math.max(0, Math.min(rows.length - 1, step));
    slider.value = now;
    rows.forEach((row, number) => {
      row.classList.toggle("later", number > now);
      row.classList.toggle("now", number === now);
    });
    for (const part of figure.querySelectorAll("[data-after]")) {
      part.classList.toggle("later", Number(part.dataset.after) > now);
    }
    figure.querySelector("output").textContent = captions[now] ? captions[now].textContent : "";
    source.querySelectorAll(".now").forEach((line) => line.classList.remove("now"));
    const line = rows[now] && source.querySelector(`[data-line="${rows[now].dataset.line}"]`);
    if (!line) return;
    line.classList.add("now");
    const top = source.getBoundingClientRect().top, box = line.getBoundingClientRect();
    const above = box.top - top, below = box.bottom - top - source.clientHeight;
    source.scrollTop += above < 0 ? above : Math.max(below, 0);
  };
  figure.querySelector(".steps").hidden = rows.length < 2;
  slider.addEventListener("input", () => show(Number(slider.value)));
  for (const button of figure.querySelectorAll("button")) {
    button.addEventListener("click", () => show(Number(slider.value) + Number(button.dataset.by)));
  }
  figure.tabIndex = -1;
  figure.addEventListener("keydown", (event) => {
    if (event.target === slider) return; // it moves by itself
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (by) { show(Number(slider.value) + by); event.preventDefault(); }
  });
  show(rows.length - 1);
  const region = figure.querySelector(".scroll"), flow = region.querySelector("svg");
  region.addEventListener("scroll", () => flow.style.setProperty("--scrolled", `${region.scrollLeft}px`));
  const beyond = (cell) => cell.getBoundingClientRect().right - region.getBoundingClientRect().right;
  const bad = [...region.querySelectorAll(".bad")].map(beyond);
  if (bad.length && Math.min(...bad) > 0) region.scrollLeft = Math.min(...bad) + region.clientWidth / 3;
}
