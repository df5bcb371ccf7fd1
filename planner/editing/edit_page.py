"""The page on which blocks are dragged from rank to rank."""

from planner.editing.edits import EditSession
from planner.pages.document import STYLE, script_data
from planner.pages.html_tables import text


def edit_page(session: EditSession) -> str:
    """Return the page with the session's state in it; later states come from the server."""
    report = session.planned.report
    title = f"{report.workload or 'A plan'} on {report.num_ranks:,} × {report.hardware}"
    return _PAGE.format(
        title=text(title), style=STYLE + _STYLE, state=script_data(session.state()), script=_SCRIPT
    )


_STYLE = """
#board{display:grid;grid-template-columns:repeat(auto-fill,minmax(250px,1fr));gap:.6em;
  margin-top:.8em}
.rank{border:1px solid #ccc;border-radius:4px;padding:.4em .6em;min-height:4em}
.rank.over{outline:3px solid #4e79a7}.rank h2{font-size:1em;margin:0}
.rank p{display:flex;gap:.5em;font-size:.8em;margin:0}.rank meter{flex:1}
.block{display:inline-block;margin:.15em .2em 0 0;padding:0 .4em;border-radius:3px;font-size:.85em;
  background:#e8e8e8;border:2px solid transparent}
.block[draggable=true]{background:#cfe0f1;cursor:grab}.block.chosen{border-color:#1f4e79}
#said{min-height:1.4em}#said.bad{color:#b00020}
button{font:inherit;margin-right:.4em}
"""

_SCRIPT = """
const board = document.getElementById("board"), said = document.getElementById("said");
const make = (tag, parent, values = {}) =>
  parent.appendChild(Object.assign(document.createElement(tag), values));
let state = JSON.parse(document.getElementById("state").textContent), chosen = null;
function show() {
  for (const name of ["step", "before", "change", "moves"])
    document.getElementById(name).textContent = state[name];
  const wanted = document.getElementById("filter").value.toLowerCase();
  const ranks = state.ranks.map((rank, number) => {
    const box = document.createElement("section");
    box.className = "rank";
    box.dataset.rank = number;
    make("h2", box, {textContent: "rank " + number});
    for (const [name, share, label] of [["lookups", rank.lookups, rank.lookup_text],
                                        ["memory", rank.memory, rank.memory_text]]) {
      const line = make("p", box);
      make("span", line, {textContent: name});
      make("meter", line, {value: share, high: 0.9});
      make("span", line, {textContent: label});
    }
    return box;
  });
  for (const {name, type, size, movable, blocks} of state.tables) {
    if (!name.toLowerCase().includes(wanted)) continue;
    blocks.forEach((places, block) => places.forEach(rank => {
      const part = blocks.length > 1 ? " " + (block + 1) + "/" + blocks.length : "";
      const chip = make("span", ranks[rank], {className: "block", draggable: movable,
        textContent: name + part, title: name + part + ": " + type + ", " + size});
      Object.assign(chip.dataset, {table: name, block});
    }));
  }
  board.replaceChildren(...ranks);
}
async function ask(action, asked = {}) {
  const answer = await fetch(action, {method: "POST", body: JSON.stringify(asked),
                                      headers: {"Content-Type": "application/json"}});
  const found = await answer.json();
  said.className = found.error ? "bad" : "";
  said.textContent = found.error || (found.saved ? "Saved " + found.saved : "");
  if (!found.error) state = found;
  show();
}
const rankOf = event => event.target.closest(".rank");
const mark = box => document.querySelectorAll(".rank")
  .forEach(each => each.classList.toggle("over", each === box));
function drop(event) {
  const box = rankOf(event);
  mark(null);
  if (!box || !chosen) return;
  event.preventDefault();
  const {table, block} = chosen.dataset;
  chosen = null;
  ask("move", {table, block: Number(block), rank: Number(box.dataset.rank)});
}
board.addEventListener("dragstart", event => {
  chosen = event.target;
  event.dataTransfer.setData("text/plain", chosen.dataset.table);
});
board.addEventListener("dragover", event => {
  if (rankOf(event)) { event.preventDefault(); mark(rankOf(event)); }
});
board.addEventListener("drop", drop);
board.addEventListener("dragend", () => { chosen = null; mark(null); });
board.addEventListener("click", event => {
  if (!event.target.draggable) return drop(event);
  if (chosen) chosen.classList.remove("chosen");
  chosen = event.target;
  chosen.classList.add("chosen");
});
document.getElementById("filter").addEventListener("input", show);
for (const name of ["undo", "save"])
  document.getElementById(name).addEventListener("click", () => ask(name));
show();
"""

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,"><title>{title}</title><style>{style}</style></head><body>
<h1>{title}</h1>
<dl><div><dt>step time</dt><dd id="step"></dd></div>
<div><dt>before</dt><dd id="before"></dd></div><div><dt>change</dt><dd id="change"></dd></div>
<div><dt>moves</dt><dd id="moves"></dd></div></dl>
<p>Drag a table, or a block of its columns, to another rank; or click it, and then the rank. Grey
ones cannot be moved. Lookups are a share of the step, memory of what is usable.</p>
<button id="undo">Undo</button><button id="save">Save</button>
<input type="search" id="filter" placeholder="filter tables" aria-label="filter tables">
<p id="said" role="status"></p><div id="board"></div>
<script type="application/json" id="state">{state}</script>
<script type="module">{script}</script>
</body></html>
"""
