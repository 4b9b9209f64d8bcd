"use strict";

// Shows a run (ShownRun.to_dict): a tape or a word with its head, or tokens one after the other.
function play(run) {
  const find = (name) => document.getElementById(`run-${name}`);
  const make = (tag, text, className) => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  const [stage, slider, count, state, text, strip, rows, tokens] =
    ["stage", "slider", "count", "state", "text", "strip", "rows", "tokens"].map(find);
  const last = run.steps.length - 1;
  const boxes = strip ? [...strip.children] : [];
  const buttons = Object.fromEntries(
    ["first", "previous", "next", "last"].map((name) => [name, find(name)])
  );
  let at = 0;

  function contents(number) {
    const cells = [...run.cells];
    for (const { changed } of run.steps.slice(1, number + 1))
      if (changed) cells[changed[0]] = changed[1];
    return cells;
  }

  function showStrip(step) {
    contents(at).forEach((content, place) => {
      const box = boxes[place];
      box.firstElementChild.textContent = content;
      box.classList.toggle("head", place === step.head);
      box.classList.toggle("fresh", place === step.changed?.[0]);
      box.classList.toggle("read", run.reads && (step.head === null || place < step.head));
      if (place === step.head) box.setAttribute("aria-current", "true");
      else box.removeAttribute("aria-current");
    });
    const box = boxes[step.head];
    // The strip alone is moved: the page stays where the reader has put it.
    if (box) strip.scrollLeft = box.offsetLeft - (strip.clientWidth - box.offsetWidth) / 2;
  }

  function showRows() {
    while (rows.rows.length > run.prompt.length + at) rows.deleteRow(-1);
    while (rows.rows.length < run.prompt.length + at) {
      const number = rows.rows.length - run.prompt.length;
      const held = new Map(run.steps[number + 1].written[0][2]);
      const row = rows.insertRow();
      row.append(make("th", `${number}`));
      for (const name of run.attributes) row.append(make("td", held.get(name) ?? ""));
    }
    [...rows.rows].forEach((row, place) => {
      row.classList.toggle("now", at > 0 && place === rows.rows.length - 1);
    });
    const view = rows.closest(".rows");
    view.scrollTop = at > 0 ? view.scrollHeight : 0;
  }

  function showTokens(written) {
    tokens.replaceChildren(...written.map(([number, margin, words]) => {
      const item = make("li", "", "token");
      item.append(make("span", `token ${number}`, "soft"));
      for (const [name, value] of words) {
        const pair = make("span", "", "held");
        pair.append(make("b", name), ` = ${value}`);
        item.append(pair);
      }
      if (!words.length) item.append(make("span", "holds nothing", "held"));
      item.append(make("span", `margin ${margin}`, "soft"));
      return item;
    }));
  }

  function showRule(rule) {
    for (const cell of document.querySelectorAll(".rules .applied"))
      cell.classList.remove("applied");
    if (rule) find(`rule-${rule[0]}-${rule[1]}`)?.classList.add("applied");
  }

  function show(number) {
    at = Math.min(Math.max(number, 0), last);
    const step = run.steps[at];
    slider.value = at;
    slider.setAttribute("aria-valuetext", `step ${at} of ${last}`);
    count.textContent = `${at}`;
    state.textContent = step.state;
    text.textContent = step.text;
    buttons.first.disabled = buttons.previous.disabled = at === 0;
    buttons.next.disabled = buttons.last.disabled = at === last;
    if (strip) showStrip(step);
    if (rows) showRows();
    showTokens(step.written);
    showRule(step.rule);
  }

  const goals = { first: () => 0, previous: () => at - 1, next: () => at + 1, last: () => last };
  const keys = { Home: "first", ArrowLeft: "previous", ArrowRight: "next", End: "last" };
  for (const [name, goal] of Object.entries(goals))
    buttons[name].addEventListener("click", () => show(goal()));
  slider.addEventListener("input", () => show(Number(slider.value)));
  document.addEventListener("keydown", (event) => {
    const here = event.target === document.body || stage.contains(event.target);
    const name = keys[event.key];
    // The slider knows these keys itself; elsewhere they may scroll.
    if (!name || !here || event.target === slider) return;
    if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(goals[name]());
  });
  find("controls").hidden = false;
  show(0);
}
