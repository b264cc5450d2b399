// Forecasts: the view of some series, and the panel that forecasts numbers.

import { chart } from "./chart.js";
import { empty, field, h, short, table } from "./dom.js";
import { chips, into } from "./forms.js";
import { ask } from "./service.js";

/** data: the output of `visualize.forecasts.forecasts`. */
export function forecastsView(root, data) {
  empty(root, h("div", { class: "cards" }, data.charts.map(chart)), h("p", { class: "note" }, data.note));
}

/** A series is numbers; the answer is a chart and a table. */
export function forecastSeries(root, model) {
  const place = h("div", { "aria-live": "polite" });
  const numbers = h("textarea", { rows: 5, "aria-label": "Numbers" });
  const read = () => {
    const values = numbers.value.split(/[\s,;]+/).filter(Boolean).map(Number);
    into(place, ask("predict", { model: model.name, texts: [{ values }] }), ({ answers: [{ forecast }] }) => {
      const levels = Object.keys(forecast), columns = Object.values(forecast), first = values.length + 1;
      const middle = levels.reduce((best, level, i) => (Math.abs(level - 0.5) < Math.abs(levels[best] - 0.5) ? i : best), 0);
      const series = [
        { name: "values", points: values.map((y, i) => [i + 1, y]).slice(-4 * columns[0].length), index: 0 },
        { name: `forecast, quantile ${levels[middle]}`, points: columns[middle].map((y, i) => [first + i, y]), index: 1 },
      ];
      const bands = [{ name: `${levels[0]} to ${levels.at(-1)}`, points: columns[0].map((low, i) => [first + i, low, columns.at(-1)[i]]), index: 1 }];
      empty(place, chart({ title: "Forecast", x: "value", series, bands }), table(["value", ...levels], columns[0].map((_, i) => [String(first + i), ...columns.map((column) => short(column[i]))])));
    });
  };
  const give = ({ values }) => ((numbers.value = values.filter((value) => value !== null).join(" ")), read());
  const form = h("form", { onsubmit: (event) => (event.preventDefault(), read()) }, field("Numbers at equal steps of time, the latest last", numbers), h("button", { type: "submit" }, "Forecast"));
  empty(root, form, chips(model, ["values"], give), place);
  const [first] = model.examples?.items ?? [];
  if (first?.values) give(first);
}
