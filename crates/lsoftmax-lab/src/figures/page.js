"use strict";
(() => {
  // Light or dark: as the system says, until the button is used.
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const button = document.createElement("button");
  const label = () => button.textContent = isDark() ? "Light" : "Dark";
  button.type = "button";
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  system.addEventListener("change", label);
  label();
  document.querySelector("nav").append(button);

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const numbers = text => text.split(/[ ,]/).map(Number);
  const show = (value, digits) => value.toLocaleString("en", { maximumSignificantDigits: digits }).replace("-", "−");

  // What is at (x, y) of a plot: its text, its distance, and where it is, if it is a point.
  const readers = {
    chart(plot, x, y) {
      let best = null;
      for (const curve of plot.querySelectorAll("[data-series]:not(.off) [data-values]")) {
        curve.at ??= curve.points ? Array.from(curve.points, p => [p.x, p.y]) : [[curve.cx.baseVal.value, curve.cy.baseVal.value]];
        curve.values ??= numbers(curve.dataset.values);
        curve.at.forEach((at, i) => {
          const distance = Math.hypot(at[0] - x, at[1] - y);
          if (distance < (best ? best.distance : 60)) best = { curve, i, at, distance };
        });
      }
      if (!best) return null;
      const name = best.curve.closest("[data-series]").dataset.series;
      const [step, value] = best.curve.values.slice(2 * best.i);
      return { ...best, text: `${name}\n${plot.dataset.x || "x"} ${show(step, 12)}: ${show(value, 5)}` };
    },
    scatter(plot, x, y) {
      let best = null;
      for (const dot of plot.querySelectorAll("[data-series]:not(.off) circle")) {
        const at = [dot.cx.baseVal.value, dot.cy.baseVal.value];
        const distance = Math.hypot(at[0] - x, at[1] - y);
        if (distance < (best ? best.distance : 8)) best = { dot, at, distance };
      }
      if (!best) return null;
      const [left, top] = numbers(plot.dataset.origin), unit = Number(plot.dataset.unit);
      const place = [best.at[0] - left, top - best.at[1]].map(length => show(length / unit, 3));
      return { ...best, text: `${best.dot.parentNode.dataset.series}: (${place.join(", ")})` };
    },
    heat(plot, x, y) {
      const cell = readers.cell(plot, x, y);
      return cell && { distance: 0, text: `${cell.row}, ${cell.column}: ${show(cell.value / 100, 3)}` };
    },
    confusion(plot, x, y) {
      const cell = readers.cell(plot, x, y);
      return cell && { distance: 0, text: `${cell.row} as ${cell.column}: ${show(cell.value, 9)}` };
    },
    cell(plot, x, y) {
      const [left, top, right, bottom] = numbers(plot.dataset.area);
      plot.names ??= JSON.parse(plot.dataset.classes);
      plot.values ??= numbers(plot.dataset.values);
      const count = plot.names.length;
      const column = Math.floor((x - left) / (right - left) * count), row = Math.floor((y - top) / (bottom - top) * count);
      if (Math.min(row, column) < 0 || Math.max(row, column) >= count) return null;
      return { row: plot.names[row], column: plot.names[column], value: plot.values[row * count + column] };
    },
  };

  for (const svg of document.querySelectorAll("figure svg")) {
    svg.setAttribute("role", "group");
    const spot = document.createElementNS(svg.namespaceURI, "circle");
    spot.setAttribute("class", "spot off");
    spot.setAttribute("r", 4);
    svg.append(spot);
    const leave = () => { tip.hidden = true; spot.classList.add("off"); };
    const point = event => {
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      let found = null;
      for (const plot of svg.querySelectorAll("[data-plot]")) {
        const at = readers[plot.dataset.plot](plot, x, y);
        if (at && !(found && found.distance <= at.distance)) found = at;
      }
      if (!found) return leave();
      tip.textContent = found.text;
      tip.hidden = false;
      tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4))}px`;
      tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 10)}px`;
      spot.classList.toggle("off", !found.at);
      if (found.at) ["cx", "cy"].forEach((name, i) => spot.setAttribute(name, found.at[i]));
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", leave);

    // The entries of a legend are buttons that hide and show their series.
    for (const entry of svg.querySelectorAll("[data-toggle]")) {
      const name = entry.dataset.toggle;
      const press = () => {
        const hidden = entry.getAttribute("aria-pressed") === "true";
        for (const other of svg.querySelectorAll("[data-toggle]")) if (other.dataset.toggle === name) other.setAttribute("aria-pressed", !hidden);
        for (const series of svg.querySelectorAll("[data-series], [data-part-of]")) if ((series.dataset.series ?? series.dataset.partOf) === name) series.classList.toggle("off", hidden);
        leave();
      };
      for (const [key, value] of [["role", "button"], ["tabindex", 0], ["aria-pressed", true], ["aria-label", name]]) entry.setAttribute(key, value);
      entry.addEventListener("click", press);
      entry.addEventListener("keydown", event => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        press();
      });
    }
  }
})();
