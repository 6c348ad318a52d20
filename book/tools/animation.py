"""Draw book/static/animation.svg, which compares a tape with segments on the first page.

The static drawing is complete. The animation plays if the radio button "play" or "pause" is checked
and the reader's system does not ask for reduced motion: elements of the classes `fly`, `grow` and
`scan` appear at the time `--at`, in seconds. The last frame equals the static drawing. The widgets
use the same colors.
"""

import re
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "book" / "static" / "animation.svg"
STYLE = ROOT / "mmrl" / "course" / "widgets" / "js" / "style.css"

LENGTHS = (7, 3, 9, 2, 5)  # lengths of the episodes, in steps
SIZE = 4  # length of a segment, in steps
LINE = 6  # segments per line of the drawing
COLORS = ("blue", "green", "purple", "dim", "blue")  # as in SegmentsExplorer
*STARTS, STEPS = accumulate(LENGTHS, initial=0)
# In pixels: width of a step, left margin, height of a bar, gap, growth of the memory per step.
CELL, LEFT, HEIGHT, GAP, RISE = 12, 6, 16, 5, 3.5
# Top of the three rows of bars, and bottom of the memory, in pixels.
ARRIVALS, SEGMENTS, TAPE, MEMORY = 24, 68, 222, 276

RULES = """\
.animation svg{display:block;width:100%;max-width:560px;height:auto;box-sizing:border-box}
svg.tape{color-scheme:light dark;background:var(--paper);border:1px solid var(--line);
font:11.5px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;COLORS}
html[data-theme="light"] svg.tape{color-scheme:light}
html[data-theme="dark"] svg.tape{color-scheme:dark}
svg.tape text{fill:var(--ink)}
svg.tape text.number{fill:var(--paper);text-anchor:middle;font-size:11px}
svg.tape .cuts{fill:none;stroke:var(--paper);stroke-width:.7}
@media (prefers-reduced-motion:no-preference){
.animation:has(.play:checked,.pause:checked) svg.tape{
.fly{animation:tape-fly 1s ease-out var(--at) both}
.grow{animation:tape-grow var(--for) linear var(--at) both;transform-box:fill-box}
.scan{animation:tape-scan var(--for) steps(STEPS,jump-none) var(--at) both}}
.animation:has(.pause:checked) svg.tape *{animation-play-state:paused!important}}
@keyframes tape-fly{from{opacity:0;transform:translate(var(--x,0),var(--y,0))}}
@keyframes tape-grow{from{transform:scaleX(0)}}
@keyframes tape-scan{from{transform:translateX(var(--x))}}
"""
PAGE = """\
<svg xmlns="http://www.w3.org/2000/svg" class="tape" viewBox="0 0 342 338" role="img" \
aria-labelledby="tape-title" aria-describedby="tape-description">
<title id="tape-title">The same five episodes as segments and on a tape</title>
<desc id="tape-description">Five episodes of 7, 3, 9, 2 and 5 steps arrive. First they are cut
into nine segments of 4 steps. Stripes fill the 10 of 36 places that hold no step. Four segments
begin in mid-episode, with an empty memory; an orange arrow marks each of them. Then the same
episodes are laid end to end on a tape of 26 steps without padding, with a flag at each begin. One
scan reads the tape. The memory is a bar that grows with each step, and each flag resets it.</desc>
<style>{rules}</style>
<defs><pattern id="stripes" width="6" height="6" patternUnits="userSpaceOnUse" \
patternTransform="rotate(45)"><rect width="2.4" height="6" style="fill:var(--dim)"/></pattern>\
</defs>{parts}
</svg>
"""


def fly(at: float, *parts: str, x: float = 0, y: float = 0) -> str:
    """Group elements that move in from an offset of (x, y) pixels at second `at`."""
    return f'<g class="fly" style="--at:{at:g}s;--x:{x:g}px;--y:{y:g}px">{"".join(parts)}</g>'


def caption(at: float, y: float, words: str, *parts: str, x: float = LEFT) -> str:
    """Return a line of text that appears at second `at` together with other elements."""
    return fly(at, *parts, f'<text x="{x}" y="{y}">{words}</text>')


def rect(x: float, y: float, width: float, height: float, style: str) -> str:
    """Draw a rectangle."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" style="{style}"/>'


def bar(episode: int, x: float, y: float, steps: int) -> str:
    """Draw `steps` steps of an episode, with lines between them and the episode's number."""
    fill = rect(x, y, steps * CELL, HEIGHT, f"fill:var(--{COLORS[episode]})")
    if steps == 1:
        return fill
    cuts = "".join(f"M{x + i * CELL} {y}v{HEIGHT}" for i in range(1, steps))
    number = f'<text class="number" x="{x + steps * CELL / 2:g}" y="{y + 12}">{episode + 1}</text>'
    return f'{fill}<path class="cuts" d="{cuts}"/>{number}'


def arrow(x: float, y: float) -> str:
    """Draw the mark of a segment that begins in mid-episode, as in SegmentsExplorer."""
    path = f"M{x} {y}l7 {HEIGHT / 2:g}l-7 {HEIGHT / 2:g}z"
    return f'<path d="{path}" style="fill:var(--orange);stroke:var(--paper)"/>'


def padding(x: float, y: float, width: float) -> str:
    """Draw a striped rectangle that represents padding."""
    return rect(x, y, width, HEIGHT, "fill:url(#stripes);stroke:var(--dim);stroke-width:.8")


def segments() -> list[str]:
    """Draw the segments, their padding, and the marks of segments that begin in mid-episode."""
    rows = [(e, s) for e, length in enumerate(LENGTHS) for s in range(0, length, SIZE)]
    parts, pads, arrows = [], [], []
    for index, (episode, start) in enumerate(rows):
        steps = min(SIZE, LENGTHS[episode] - start)
        x = LEFT + index % LINE * (SIZE * CELL + GAP)
        y = SEGMENTS + index // LINE * (HEIGHT + 8)
        away = {"x": LEFT + (STARTS[episode] + start) * CELL + episode * 4 - x, "y": ARRIVALS - y}
        parts.append(fly(15 + 0.8 * index, bar(episode, x, y, steps), **away))
        pads += [padding(x + steps * CELL, y, (SIZE - steps) * CELL)] if steps < SIZE else []
        arrows += [arrow(x, y)] if start else []
    places = len(rows) * SIZE
    words = f"padding: {places - STEPS} of {places} places hold no step"
    parts.append(caption(23.5, 130, words, *pads, padding(LEFT, 118, 14), x=LEFT + 22))
    words = f"begins in mid-episode, with an empty memory: {len(arrows)} of {len(rows)}"
    return [*parts, caption(27, 154, words, *arrows, arrow(LEFT + 4, 142), x=LEFT + 22)]


def draw() -> str:
    """Return the animation as an SVG string."""
    arrivals, tape, flags, memory = [], [], "", []
    for episode, (start, steps) in enumerate(zip(STARTS, LENGTHS, strict=True)):
        x = LEFT + start * CELL
        style = f"--at:{1 + 0.35 * start + 0.5 * episode:g}s;--for:{0.35 * steps:g}s"
        box = bar(episode, x + episode * 4, ARRIVALS, steps)
        arrivals.append(f'<g class="grow" style="{style}">{box}</g>')
        box = bar(episode, x, TAPE, steps)
        tape.append(fly(32.5 + 0.8 * episode, box, x=episode * 4, y=ARRIVALS - TAPE))
        flags += f"M{x} {TAPE + HEIGHT + 2}v-26l8 4l-8 4z"
        for step in range(steps):
            high = RISE * (step + 1)
            box = (x + step * CELL + 1, MEMORY - high, CELL - 2, high)
            column = rect(*box, f"fill:var(--{COLORS[episode]})")
            memory.append(fly(43 + 0.5 * (start + step), column, y=RISE))
    path = f'<path d="{flags}" style="fill:var(--ink);stroke:var(--ink);stroke-width:2"/>'
    last = (STEPS - 1) * CELL
    frame = rect(LEFT + last, TAPE - 1, CELL, MEMORY - TAPE + 3, "fill:none;stroke:var(--ink)")
    style = f"--at:43s;--for:{0.5 * STEPS:g}s;--x:{-last}px"
    parts = [caption(0, 16, "1. Episodes arrive. Each has its own length."), *arrivals]
    parts += [caption(13.5, 60, f"2. Segments: episodes are cut every {SIZE} steps."), *segments()]
    parts += [caption(31, 182, "3. Tape: the same episodes, laid end to end."), *tape]
    parts += [caption(37.5, 198, "A flag marks each begin. Nothing is padded.", path)]
    parts += [caption(41, 294, "4. One scan reads it. Each flag resets the memory."), *memory]
    parts += [fly(42, f'<g class="scan" style="{style}">{frame}</g>')]
    parts += [caption(56.5, 310, "The bar counts the steps since the last flag.")]
    parts += [caption(59, 330, "No padding, and no memory starts in mid-episode.")]
    colors = "".join(re.findall(r"--\w+: light-dark\([^)]*\);", STYLE.read_text("utf-8")))
    rules = RULES.replace("COLORS", colors).replace("STEPS", str(STEPS))
    return PAGE.format(rules=rules, parts="\n".join(parts))


if __name__ == "__main__":
    PICTURE.write_text(draw(), "utf-8")
