"use strict";
// Sorts tables, searches the students' table and opens its rows. Without it everything can still be read.
(() => {
  document.documentElement.classList.add("js");

  const units = (table) => [...table.querySelectorAll(":scope > tbody.unit, :scope > tbody:not(.unit) > tr")];

  const rowOf = (unit) => (unit.tagName === "TR" ? unit : unit.rows[0]);

  function keyOf(unit, column) {
    const cell = rowOf(unit).cells[column];
    const text = (cell.dataset.v ?? cell.textContent).trim();
    return { text, number: text === "" ? NaN : Number(text) };
  }

  // Numbers before texts, what is empty last whichever way.
  function order(a, b, sign) {
    if (a.text === "" || b.text === "") return (a.text === "") - (b.text === "");
    const numbers = [a.number, b.number].map((each) => !Number.isNaN(each));
    if (numbers[0] && numbers[1]) return sign * (a.number - b.number);
    if (numbers[0] !== numbers[1]) return sign * (numbers[0] ? -1 : 1);
    return sign * a.text.localeCompare(b.text, "en", { numeric: true, sensitivity: "base" });
  }

  function sortBy(table, head, column) {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const keyed = units(table).map((unit) => ({ unit, key: keyOf(unit, column) }));
    keyed.sort((a, b) => order(a.key, b.key, sign));
    for (const { unit } of keyed) unit.parentNode.append(unit);
  }

  // A button with what the cell holds, as only a button is reached and pressed by everyone.
  function buttonIn(cell, onPress, className) {
    const button = document.createElement("button");
    button.type = "button";
    if (className) button.className = className;
    button.append(...cell.childNodes);
    button.addEventListener("click", onPress);
    cell.append(button);
    return button;
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      buttonIn(head, () => sortBy(table, head, column));
    });
  }

  // What a row holds waits in a noscript element as text, so that a page of 500 students opens at once.
  function open(unit, wanted) {
    const more = unit.rows[1];
    const waiting = more.querySelector("noscript");
    if (wanted && waiting) {
      more.cells[0].innerHTML = waiting.textContent;
      more.querySelector("details.student").open = true;
    }
    more.hidden = !wanted;
    unit.querySelector(".row-button").setAttribute("aria-expanded", String(wanted));
  }

  const students = [...document.querySelectorAll("#students tbody.unit")].filter((unit) => unit.rows.length > 1);
  for (const unit of students) {
    const button = buttonIn(rowOf(unit).cells[0], () => open(unit, unit.rows[1].hidden), "row-button");
    button.setAttribute("aria-controls", unit.rows[1].id);
    open(unit, false);
  }

  const field = document.getElementById("search");
  const count = document.getElementById("search-count");
  function search() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...document.querySelectorAll("#students tbody.unit")];
    for (const unit of all) {
      const text = `${rowOf(unit).textContent} ${unit.dataset.words ?? ""}`.toLowerCase();
      unit.hidden = !words.every((word) => text.includes(word));
    }
    count.textContent = `${all.filter((unit) => !unit.hidden).length} of ${all.length} shown`;
  }
  field.addEventListener("input", search);
  search();

  function openTarget() {
    const unit = document.getElementById(location.hash.slice(1));
    if (!students.includes(unit)) return;
    if (unit.hidden) {
      field.value = "";
      search();
    }
    open(unit, true);
    unit.querySelector(".row-button").focus();
    unit.scrollIntoView();
  }
  window.addEventListener("hashchange", openTarget);
  openTarget();
})();
