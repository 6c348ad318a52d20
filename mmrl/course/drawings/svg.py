"""SVG shapes and the colors of the light and the dark theme.

The color of a shape is given by a role, such as "ink". The shape has a CSS class for this role, and
the color of the light theme as an attribute, which applies on pages that strip style sheets.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from jaxtyping import Float
from numpy import floating, ndarray

Number = float | int | floating

# Okabe and Ito (2008), "Color Universal Design": distinguishable with every type of color vision.
BLACK, BLUE, SKY, GREEN = "#1b1b1b", "#0072B2", "#56B4E9", "#009E73"
ORANGE, VERMILION, PURPLE = "#E69F00", "#D55E00", "#CC79A7"

ROLES: dict[str, tuple[str, str]] = {  # role: (light theme, dark theme)
    "paper": ("#ffffff", "#17191d"),
    "ink": (BLACK, "#ececec"),
    "dim": ("#636363", "#a9a9a9"),
    "line": ("#c4c4c4", "#54575d"),
    "fill": ("#e6e6e6", "#33363c"),
    "card": ("#ffffff", "#efece4"),
    "good": (BLUE, SKY),
    "bad": (VERMILION, "#f08a4b"),
    "mark": (ORANGE, ORANGE),
}


def document(width: Number, height: Number, title: str, desc: str, body: Sequence[str]) -> str:
    """Return a complete SVG of `width` × `height` pixels, on a background with rounded corners.

    `title` is the tooltip of the drawing and its name for screen readers, and `desc` is its
    description for screen readers.
    """
    sheet = rect(0.5, 0.5, width - 1, height - 1, fill="paper", stroke="line", radius=8)
    shapes = "\n".join([sheet, *body])
    size = f'width="{num(width)}" height="{num(height)}" viewBox="0 0 {num(width)} {num(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" '
        f'aria-label={quoteattr(title)} font-family="system-ui, sans-serif">\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(desc)}</desc>\n"
        f"<style>{_style(shapes)}</style>\n{shapes}\n</svg>"
    )


def rect(
    x: Number,
    y: Number,
    width: Number,
    height: Number,
    *,
    fill: str = "none",
    stroke: str = "none",
    radius: Number = 0,
    more: str = "",
) -> str:
    """Draw a rectangle.

    `fill` and `stroke` are roles or colors. `more` is a string with further attributes.
    """
    corner = f' rx="{num(radius)}"' if radius else ""
    box = f'x="{num(x)}" y="{num(y)}" width="{num(width)}" height="{num(height)}"'
    return f"<rect {box}{corner}{paint(fill, stroke)}{_more(more)}/>"


def circle(
    x: Number, y: Number, r: Number, *, fill: str = "none", stroke: str = "none", more: str = ""
) -> str:
    """Draw a circle centered at (x, y)."""
    shape = f'cx="{num(x)}" cy="{num(y)}" r="{num(r)}"'
    return f"<circle {shape}{paint(fill, stroke)}{_more(more)}/>"


def line(
    x1: Number, y1: Number, x2: Number, y2: Number, *, stroke: str = "line", more: str = ""
) -> str:
    """Draw a straight line."""
    ends = f'x1="{num(x1)}" y1="{num(y1)}" x2="{num(x2)}" y2="{num(y2)}"'
    return f"<line {ends}{paint('none', stroke)}{_more(more)}/>"


def path(d: str, *, fill: str = "none", stroke: str = "none", more: str = "") -> str:
    """Draw a path, where `d` uses SVG path syntax."""
    return f'<path d="{d}"{paint(fill, stroke)}{_more(more)}/>'


def text(
    x: Number,
    y: Number,
    content: object,
    *,
    size: Number = 12,
    fill: str = "ink",
    anchor: str = "start",
    more: str = "",
) -> str:
    """Draw text with its baseline at y. `anchor` is "start", "middle" or "end"."""
    place = f'x="{num(x)}" y="{num(y)}" font-size="{num(size)}"'
    aside = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f"<text {place}{aside}{paint(fill, 'none')}{_more(more)}>{escape(str(content))}</text>"


def verdict(x: Number, y: Number, reward: Number) -> str:
    """Draw ✓, ✗ or a dot, depending on the sign of the reward."""
    if reward > 0:
        d, role = f"M{num(x - 4)} {num(y)}l3 3.5l5.5 -7", "good"
    elif reward < 0:
        d, role = f"M{num(x - 3.5)} {num(y - 3.5)}l7 7m0 -7l-7 7", "bad"
    else:
        return circle(x, y, 1.8, fill="dim", more='data-mark="none"')
    mark = {"good": "right", "bad": "wrong"}[role]
    return path(d, stroke=role, more=f'stroke-width="2" stroke-linecap="round" data-mark="{mark}"')


def rewards(
    values: Float[ndarray, " time"], x: Number, y: Number, width: Number, height: Number
) -> list[str]:
    """Draw one bar per step, upward for a positive reward and downward for a negative reward.

    A reward of 0 is a dot. Bars have a minimum length, so that small rewards remain visible.
    """
    largest = max((abs(float(v)) for v in values), default=0.0) or 1.0
    pitch, middle = width / max(len(values), 1), y + height / 2
    out = [line(x, middle, x + width, middle)]
    for i, value in enumerate(values):
        left, bar = x + i * pitch, max(abs(float(value)) / largest * height / 2, 5)
        if value == 0:
            out.append(circle(left + pitch / 2, middle, 1.2, fill="dim", more='data-mark="none"'))
            continue
        top, role, mark = (middle - bar, "good", "gain") if value > 0 else (middle, "bad", "loss")
        wide = min(max(pitch * 0.7, 0.6), 24)
        more = f'data-mark="{mark}"'
        out.append(rect(left + (pitch - wide) / 2, top, wide, bar, fill=role, more=more))
    return out


def heading(width: Number, left: str, right: str = "") -> list[str]:
    """Draw the line of text above a drawing."""
    out = [text(14, 23, left, size=13, more='font-weight="600"')]
    return [*out, text(width - 14, 23, right, size=12, fill="dim", anchor="end")] if right else out


def num(value: Number) -> str:
    """Format a number with at most one decimal, without a trailing zero."""
    return f"{round(float(value), 1) + 0.0:.1f}".removesuffix(".0")


def paint(fill: str, stroke: str) -> str:
    """Return the attributes for a fill and a stroke."""
    roles = [(a, v) for a, v in (("fill", fill), ("stroke", stroke)) if v in ROLES]
    classes = " ".join(f"mm-{attribute}-{role}" for attribute, role in roles)
    light = {a: ROLES[v][0] if v in ROLES else v for a, v in (("fill", fill), ("stroke", stroke))}
    line = "" if light["stroke"] == "none" else f' stroke="{light["stroke"]}"'
    css = f' class="{classes}"' if classes else ""
    return f' fill="{light["fill"]}"{line}{css}'


def _style(shapes: str) -> str:
    """Return the CSS rules of the classes that occur in `shapes`, for both themes."""
    pairs = [
        (attribute, role)
        for attribute in ("fill", "stroke")
        for role in ROLES
        if f"mm-{attribute}-{role}" in shapes
    ]
    rules = ["".join(f".mm-{a}-{r}{{{a}:{ROLES[r][theme]}}}" for a, r in pairs) for theme in (0, 1)]
    return f"{rules[0]}@media(prefers-color-scheme:dark){{{rules[1]}}}"


def _more(attributes: str) -> str:
    return f" {attributes}" if attributes else ""
