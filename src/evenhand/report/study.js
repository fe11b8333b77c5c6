// The weights of the GGF are the reader's choice: scores and ranking are computed here, from the returns of every seed.
"use strict";

const study = JSON.parse(document.getElementById("study-data").textContent);
const chooser = document.getElementById("setting");
const slider = document.getElementById("ratio");
const shown = document.getElementById("weights");
const body = document.querySelector("#ranking tbody");

function weights(ratio, users) {
  const raw = Array.from({ length: users }, (_, i) => ratio ** -i);
  const sum = raw.reduce((a, b) => a + b, 0);
  return raw.map((w) => w / sum);
}

// GGF_w(v) = Σ_k w_k v↑_k: the largest weight goes to whoever gets least.
function ggf(w, returns) {
  return [...returns].sort((a, b) => a - b).reduce((sum, v, k) => sum + w[k] * v, 0);
}

function mean(values) {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

// Half of Student's 95 % interval of the mean over seeds; nothing for a single one.
function half(values) {
  const n = values.length;
  if (n < 2) return null;
  const m = mean(values);
  const variance = values.reduce((sum, v) => sum + (v - m) ** 2, 0) / (n - 1);
  return study.quantiles[n] * Math.sqrt(variance / n);
}

function text(value, largest) {
  const digits = largest > 0 ? Math.min(6, Math.max(0, 3 - Math.floor(Math.log10(largest)))) : 3;
  return value.toFixed(digits).replace("-", "−");
}

function cell(row, content, kind) {
  const made = row.insertCell();
  if (kind) made.className = kind;
  made.append(content);
}

function update() {
  const setting = study.settings[chooser.value];
  const ratio = 10 ** Number(slider.value);
  const w = weights(ratio, setting.objectives.length);
  const scores = Object.entries(setting.returns).map(([name, seeds]) => {
    const values = seeds.map((returns) => ggf(w, returns));
    return { name, score: mean(values), half: half(values) };
  });
  scores.sort((a, b) => b.score - a.score);
  const largest = Math.max(...scores.map((s) => Math.abs(s.score)));
  const low = Math.min(0, ...scores.map((s) => s.score));
  const high = Math.max(0, ...scores.map((s) => s.score));
  const range = high - low || 1;
  body.replaceChildren();
  scores.forEach((s, i) => {
    const row = body.insertRow();
    cell(row, String(i + 1));
    cell(row, s.name);
    cell(row, text(s.score, largest));
    cell(row, s.half === null ? "–" : `±${text(s.half, largest)}`);
    const bar = document.createElement("div");
    bar.className = "bar";
    bar.style.marginLeft = `${(100 * (Math.min(0, s.score) - low)) / range}%`;
    bar.style.width = `${(100 * Math.abs(s.score)) / range}%`;
    cell(row, bar, "bars");
  });
  const few = w.slice(0, 4).map((x) => x.toPrecision(3));
  shown.textContent = `weights 1/${ratio.toFixed(2)}^i: ${few.join(", ")}${w.length > 4 ? ", …" : ""}`;
  slider.setAttribute("aria-valuetext", shown.textContent);
}

chooser.addEventListener("change", update);
slider.addEventListener("input", update);
for (const button of document.querySelectorAll("button[data-ratio]")) {
  button.addEventListener("click", () => {
    slider.value = Math.log10(Number(button.dataset.ratio));
    update();
  });
}
update();
