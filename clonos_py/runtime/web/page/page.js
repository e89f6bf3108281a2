// The page of a run. It asks for the state every second, and at once when an event comes.
import { layout } from "./layout.js";

const SVG = "http://www.w3.org/2000/svg";
const EVENTS_SHOWN = 200;
const ASK_MS = 1000;
const byId = (id) => document.getElementById(id);

function made(name, attributes = {}, ...children) {
  const element = name.startsWith("svg:")
    ? document.createElementNS(SVG, name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const whole = new Intl.NumberFormat("en");
const count = (value) => whole.format(Math.round(value));
const share = (value) => (value === null ? "" : `${Math.round(value * 100)}%`);
function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const at = value < 1 ? 0 : Math.min(Math.floor(Math.log10(value) / 3), units.length - 1);
  return `${(value / 1000 ** at).toFixed(at ? 1 : 0)} ${units[at]}`;
}
function span(seconds) {
  if (seconds >= 86400) return `${Math.floor(seconds / 86400)} d`;
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return seconds >= 60 ? `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s` : `${seconds.toFixed(1)} s`;
}

function drawn(job) {
  const { boxes, edges, width, height } = layout(job.vertices, job.edges);
  const svg = made("svg:svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(made("svg:title", {}, `The operators of ${job.job}, and how rows travel between them`));
  for (const edge of edges) svg.append(made("svg:path", { class: "edge", d: edge }));
  for (const { vertex, x, y, w, h } of boxes) {
    const bar = (at, kind, value) => [
      made("svg:rect", { class: "track", x: x + 10, y: at, width: w - 20, height: 5, rx: 2 }),
      made("svg:rect", { class: `fill ${kind}`, x: x + 10, y: at, width: (w - 20) * (value ?? 0), height: 5, rx: 2 }),
    ];
    const lag = vertex.rows_waiting !== null ? `${count(vertex.rows_waiting)} rows behind`
      : vertex.lag_s === null || vertex.lag_s > 86400 ? "" : `${span(vertex.lag_s)} behind`;
    const title = `${vertex.name}: ${vertex.operators.join(", ")}; busy ${share(vertex.busy)}, held back ${share(vertex.held_back)}`;
    svg.append(made("svg:g", {}, made("svg:title", {}, title),
      made("svg:rect", { class: "box", x, y, width: w, height: h, rx: 8 }),
      made("svg:text", { x: x + 10, y: y + 22 }, `${vertex.name} ×${vertex.parallelism}`),
      made("svg:text", { x: x + 10, y: y + 42, class: "faint" }, `${count(vertex.rows_in_per_s)} rows in/s`),
      made("svg:text", { x: x + 10, y: y + 58, class: "faint" }, lag || `${count(vertex.rows_out_per_s)} out/s`),
      ...bar(y + 68, "busy", vertex.busy), ...bar(y + 77, "held", vertex.held_back)));
  }
  return svg;
}

function recovery(found, isOpen) {
  const steps = found.steps.filter((step) => step.after_ms !== null).sort((a, b) => a.after_ms - b.after_ms);
  const last = Math.max(...steps.map((step) => step.after_ms), 1);
  const bar = made("div", { class: "bar", role: "img", "aria-label": steps.map((s) => `${s.step} after ${count(s.after_ms)} ms`).join(", ") });
  let from = 0;
  for (const step of steps) {
    const part = made("span", { title: `${step.step} after ${count(step.after_ms)} ms` });
    part.style.left = `${(from / last) * 100}%`;
    part.style.width = `${((step.after_ms - from) / last) * 100}%`;
    bar.append(part);
    from = step.after_ms;
  }
  const list = made("dl", {}, ...steps.flatMap((step) => [made("dt", {}, step.step), made("dd", {}, `after ${count(step.after_ms)} ms`)]));
  if (found.rows_replayed) list.append(made("dt", {}, "replayed"), made("dd", {}, `${count(found.rows_replayed)} rows`));
  const words = `${found.time.slice(11, 19)} ${found.task} ${found.planned ? "moved" : "failed"}: ${found.how}`;
  const done = steps.find((step) => step.step === "first new result");
  const details = made("details", { class: "recovery", "data-key": `${found.at_s} ${found.task}` },
    made("summary", {}, words, made("span", { class: "faint" }, done ? ` — new results after ${count(done.after_ms)} ms` : " — recovering")), bar, list);
  details.open = isOpen;
  return details;
}

const figure = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

/* Users' metrics as entries: totals of counters, averages of histograms, the range of gauges over their tasks. */
function measured(metrics) {
  const together = Map.groupBy(metrics, (metric) => `${metric.operator}.${metric.name.replaceAll("_", " ")}`);
  const sum = (tasks, key) => tasks.reduce((found, task) => found + task[key], 0);
  return [...together].map(([name, tasks]) => {
    if (tasks[0].kind === "counter") return [name, count(sum(tasks, "value"))];
    if (tasks[0].kind === "histogram") return [name, `${figure.format(sum(tasks, "value") / sum(tasks, "count"))} on average of ${count(sum(tasks, "count"))}`];
    const values = [...new Set([Math.min(...tasks.map((task) => task.value)), Math.max(...tasks.map((task) => task.value))])];
    return [name, values.map((value) => figure.format(value)).join(" to ")];
  });
}

function show(job) {
  document.title = `${job.job} – ${job.state}`;
  byId("job").textContent = job.job;
  const read = job.vertices.filter((vertex) => vertex.source);
  const rate = read.reduce((sum, vertex) => sum + vertex.rows_in_per_s, 0);
  byId("summary").textContent = [job.state, span(job.at_s), job.waits_for, job.state === "running" ? `${count(rate)} rows/s` : null].filter(Boolean).join(" · ");
  byId("graph").replaceChildren(drawn(job));
  const open = new Set([...document.querySelectorAll(".recovery[open]")].map((each) => each.dataset.key));
  const known = document.querySelector(".recovery") !== null;
  const recoveries = [...job.recoveries].reverse();
  byId("recoveries").replaceChildren(...(recoveries.length
    ? recoveries.map((found, at) => recovery(found, open.has(`${found.at_s} ${found.task}`) || (!known && at === 0)))
    : [made("p", { class: "faint" }, "none")]));
  const { completed, aborted, skipped, last } = job.checkpoints;
  const newest = last.at(-1);
  byId("checkpoint-summary").textContent = [`${count(completed)} completed, ${count(aborted)} aborted, ${count(skipped)} skipped`,
    newest ? `the last took ${count(newest.duration_ms)} ms and ${bytes(newest.bytes)}` : null].filter(Boolean).join("; ");
  const most = Math.max(...last.map((each) => each.duration_ms), 1);
  const columns = made("div", { class: "columns", role: "img", "aria-label": `durations of the last ${last.length} checkpoints, at most ${count(most)} ms` });
  for (const each of last) {
    const column = made("div", { title: `checkpoint ${each.checkpoint}: ${count(each.duration_ms)} ms, ${bytes(each.bytes)}` });
    column.style.height = `${(each.duration_ms / most) * 100}%`;
    columns.append(column);
  }
  byId("checkpoints").replaceChildren(columns);
  byId("tasks").replaceChildren(...job.tasks.map((task) => {
    const state = Object.values(task.state).reduce((sum, size) => sum + size.bytes, 0);
    const cells = [count(task.rows_in), share(task.busy), share(task.held_back), bytes(task.resident_bytes), bytes(state),
      bytes(task.in_flight_bytes + task.spilled_bytes)];
    return made("tr", {}, made("th", { scope: "row" }, task.task), made("td", {}, task.role), ...cells.map((text) => made("td", { class: "n" }, text)));
  }));
  const listed = (entries) => entries.flatMap(([key, value]) => [made("dt", {}, key), made("dd", {}, String(value))]);
  const counts = Object.entries(job.counts).map(([name, amount]) => [name.replaceAll("_", " "), count(amount)]);
  const counted = [...counts, ...measured(job.metrics)];
  byId("counts").replaceChildren(...(counted.length ? listed(counted) : [made("dt", {}, "nothing yet")]));
  byId("settings").replaceChildren(...listed(Object.entries(job.settings)));
}

function happened(event) {
  if (!event.message) return;
  const line = made("li", { class: event.level }, made("time", { datetime: event.time }, event.time.slice(11, 19)), made("span", {}, event.message));
  byId("events").prepend(line);
  while (byId("events").children.length > EVENTS_SHOWN) byId("events").lastChild.remove();
}

let asking = false, began = null, stream = null;
async function ask() {
  if (asking || document.hidden) return;
  asking = true;
  try {
    const answer = await fetch("/api/v1/job", { cache: "no-store" });
    if (answer.status === 401) return login();
    const job = await answer.json();
    byId("login").hidden = true;
    byId("main").hidden = false;
    for (const name of ["savepoint", "rescale", "stop"]) byId(name).hidden = job.state !== "running" || !job.controls.includes(name);
    if (began !== job.began) listen(job.began);
    show(job);
  } catch {
    byId("summary").textContent = "the driver of the job does not answer; asking again";
    began = null;
  } finally {
    asking = false;
  }
}

function listen(from) {
  began = from;
  stream?.close();
  byId("events").replaceChildren();
  stream = new EventSource("/api/v1/events");
  stream.onmessage = (message) => {
    happened(JSON.parse(message.data));
    ask();
  };
}

function login() {
  byId("summary").textContent = "";
  byId("main").hidden = true;
  byId("login").hidden = false;
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  document.cookie = `clonos_token=${encodeURIComponent(byId("token").value)}; SameSite=Strict; path=/`;
  byId("refused").textContent = "";
  ask().then(() => { if (!byId("login").hidden) byId("refused").textContent = "That is not the token of this job."; });
});
async function change(what, wanted) {
  const answer = await fetch(`/api/v1/${what}`, { method: "POST", body: JSON.stringify(wanted) });
  if (!answer.ok) alert(await answer.text());
  return answer.ok ? answer.json() : null;
}

byId("stop").addEventListener("click", () => {
  if (confirm("Stop the job, with a last checkpoint?")) change("stop", {});
});
byId("savepoint").addEventListener("click", async () => {
  const name = prompt("Keep the last complete checkpoint under which name?")?.trim();
  const kept = name ? await change("savepoint", { name }) : null;
  if (kept) alert(`Savepoint ${kept.savepoint} is checkpoint ${kept.checkpoint}.`);
});
byId("rescale").addEventListener("click", () => {
  const given = prompt("How many tasks for each operator? Such as 4, or join=4 source=2 for some.")?.trim();
  if (!given) return;
  const wanted = { operators: {} };
  for (const part of given.split(/[\s,]+/)) {
    const at = part.lastIndexOf("=");
    if (at < 0) wanted.parallelism = Number(part);
    else wanted.operators[part.slice(0, at)] = Number(part.slice(at + 1));
  }
  change("rescale", wanted);
});

ask();
setInterval(ask, ASK_MS);
document.addEventListener("visibilitychange", ask);
