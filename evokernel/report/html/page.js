"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const made = (tag, fields = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), fields);
    element.append(...children);
    return element;
  };

  // -- lists that can be searched: rows of tables, and the items of anything else --------------

  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
  const searched = (items, place, choices = [], what = "") => {
    const count = made("span", { role: "status" });
    const label = what ? `Filter ${what} by words` : "Filter by words";
    const box = made("input", { type: "search", placeholder: label });
    box.setAttribute("aria-label", label);
    const texts = new Map(items.map((item) => [item, item.textContent.toLowerCase()]));
    const apply = () => {
      const wanted = words(box.value);
      let shown = 0;
      for (const item of items) {
        const fits = wanted.every((word) => texts.get(item).includes(word)) &&
          choices.every((choice) => choice.fits(item));
        item.hidden = !fits;
        shown += fits;
      }
      count.textContent = shown < items.length ? `${shown} of ${items.length}` : "";
    };
    box.addEventListener("input", apply);
    for (const choice of choices) choice.control.addEventListener("change", apply);
    place.before(made("div", { className: "controls" }, box, ...choices.map((c) => c.control), count));
  };

  const choice = (head, column, rows) => {
    const of = (row) => row.cells[column].textContent.trim();
    const values = [...new Set(rows.map(of))].filter(Boolean).sort();
    if (values.length < 2) return null;
    const control = made("select", {}, made("option", { value: "", textContent: `${head.textContent}: all` }),
      ...values.map((value) => made("option", { value, textContent: value })));
    control.setAttribute("aria-label", head.textContent);
    return { control, fits: (row) => !control.value || of(row) === control.value };
  };

  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    return cell.textContent.trim();
  };
  const isEmpty = (value) => value === "" || Number.isNaN(value);
  const compared = (a, b) => {
    if (isEmpty(a) || isEmpty(b)) return 0;
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const sortable = (table, head, column) => {
    const button = made("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const was = head.getAttribute("aria-sort");
      const first = head.classList.contains("number") ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = was === first ? other : first;
      for (const each of all("th", table)) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row) => [key(row, column), row]);
      rows.sort(([a], [b]) => isEmpty(a) - isEmpty(b) || sign * compared(a, b));
      body.append(...rows.map(([, row]) => row));
    });
  };

  for (const table of all("table[data-searched]")) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 3) continue;
    const heads = all("thead th", table);
    const choices = heads.map((head, column) =>
      head.dataset.choice === undefined ? null : choice(head, column, rows)).filter(Boolean);
    heads.forEach((head, column) => sortable(table, head, column));
    searched(rows, table.parentElement, choices);
  }

  for (const list of all("[data-items]")) {
    const items = all("[data-item]", list);
    const folds = items.filter((item) => item.tagName === "DETAILS");
    if (items.length > 2) searched(items, list, [], list.dataset.items);
    if (folds.length < 2) continue;
    const toggle = made("button", { type: "button", textContent: "Open all" });
    toggle.addEventListener("click", () => {
      const open = toggle.textContent === "Open all";
      for (const fold of folds) fold.open = open;
      toggle.textContent = open ? "Close all" : "Open all";
    });
    const controls = list.previousElementSibling;
    if (controls?.classList.contains("controls")) controls.append(toggle);
    else list.before(made("div", { className: "controls" }, toggle));
  }

  // -- links into folded texts ------------------------------------------------------------------

  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    target.hidden = false;
    for (let place = target; place; place = place.parentElement) {
      if (place.tagName === "DETAILS") place.open = true;
    }
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) unfold();
  });
  if (location.hash) unfold();

  addEventListener("beforeprint", () => {
    for (const fold of all("details:not([open])")) {
      fold.dataset.printed = "";
      fold.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const fold of all("details[data-printed]")) {
      delete fold.dataset.printed;
      fold.open = false;
    }
  });

  // -- tooltips of plots ------------------------------------------------------------------------

  const tip = made("div", { className: "tip", role: "tooltip", hidden: true });
  document.body.append(tip);
  const show = (mark) => {
    const place = mark.getBoundingClientRect();
    tip.textContent = mark.dataset.said;
    tip.hidden = false;
    const left = place.left + place.width / 2 - tip.offsetWidth / 2;
    const right = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(left, right)) + scrollX}px`;
    const above = place.top - tip.offsetHeight - 6;
    tip.style.top = `${(above > 0 ? above : place.bottom + 6) + scrollY}px`;
  };
  const hide = () => { tip.hidden = true; };
  for (const mark of all("[data-tip]")) {
    const title = mark.querySelector("title");
    mark.dataset.said = title.textContent;
    title.remove(); // the browser's own would come a second later, and say it again
    const place = mark.closest("a") ?? mark;
    if (place === mark) mark.setAttribute("tabindex", "0");
    place.setAttribute("aria-label", mark.dataset.said);
    for (const on of ["pointerenter", "focus"]) place.addEventListener(on, () => show(mark));
    for (const off of ["pointerleave", "blur"]) place.addEventListener(off, hide);
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
