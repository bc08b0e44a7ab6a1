"""How pages and pictures look: on light and dark screens, on a phone, on paper. Nothing comes from elsewhere."""

from __future__ import annotations

#: Colours that people who see no red or no green tell apart, in this order; the last one is for the rest.
_MEMBERS = ("#0b6fb8", "#e08a00", "#00906a", "#c25a9a", "#4aa8dc", "#c8501e", "#7a63c7", "#8d7a1c")
MOST_COLOURS = len(_MEMBERS)

_LIGHT = (
    "--paper:#ffffff;--panel:#f6f8fa;--ink:#1f2328;--faint:#59636e;--line:#d5dbe1;--grid:#e8ecf0;"
    "--lost:#c4201d;--unsure:#9a6700;--good:#1a7f37;--pause:#d1242f;--wash:#d1242f;--rest:#9aa4ae;--covered:#c5d9ea"
)
_DARK = (
    "--paper:#0f1318;--panel:#181d24;--ink:#e6eaee;--faint:#9ba6b2;--line:#343c46;--grid:#252c35;"
    "--lost:#ff6b63;--unsure:#e3b341;--good:#4cc265;--pause:#ff7b72;--wash:#ff7b72;--rest:#6b7681;--covered:#2c4761"
)

#: The pattern that fills pauses; the one id that all pictures of a page share.
HATCH = (
    '<defs><pattern id="audit-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="ground" width="5" height="5"/><path class="hatch" d="M0 0V5"/></pattern></defs>'
)
PICTURE = "\n".join(
    [
        f":root{{color-scheme:light dark;{_LIGHT}}}",
        f"@media(prefers-color-scheme:dark){{:root{{{_DARK}}}}}",
        f"@media print{{:root{{color-scheme:light;{_LIGHT}}}}}",
        "svg.audit{font:12px/1.2 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}",
        "svg.audit text{fill:var(--ink)}",
        "svg.audit text.faint,svg.audit tspan.faint{fill:var(--faint)}",
        "svg.audit text.in{fill:#fff;font-size:10px}",
        "svg.audit .ground{fill:var(--paper)}",
        "svg.audit .grid{stroke:var(--grid);fill:none}",
        "svg.audit .axis{stroke:var(--line);fill:none}",
        "svg.audit .rebalance{stroke:var(--faint);stroke-dasharray:3 3;fill:none}",
        "svg.audit .stop{fill:var(--wash);opacity:.13}",
        "svg.audit .pause{fill:url(#audit-hatch);stroke:var(--pause);stroke-width:.75}",
        "svg.audit .hatch{stroke:var(--pause);stroke-width:1.5}",
        "svg.audit .covered{fill:var(--covered)}",
        "svg.audit .lost{fill:var(--lost)}",
        "svg.audit .expired{fill:var(--lost);opacity:.5}",
        "svg.audit .unknown{fill:var(--unsure)}",
        "svg.audit .left,svg.audit .pending{fill:none;stroke:var(--faint);stroke-dasharray:2 2}",
        "svg.audit .repeated{fill:#7a63c7}",
        "svg.audit .total{fill:var(--rest);opacity:.35}",
        "svg.audit .curve{fill:none;stroke-width:1.6;stroke-linejoin:round}",
        "svg.audit .rest{fill:var(--rest)}",
        *(
            f"svg.audit .m{i}{{fill:{colour}}}svg.audit .curve.m{i}{{fill:none;stroke:{colour}}}"
            for i, colour in enumerate(_MEMBERS)
        ),
    ]
)

#: Pictures and tables of many columns are not made narrower than that: they scroll, and on a screen where they do they
#: say so. Padding: of the page, on each side.
AT_LEAST_PX, _PADDING_PX = 680, 16

_SCROLLING = f"""\
:root{{--at-least:{AT_LEAST_PX}px}}
.scrolls table{{min-width:var(--at-least)}}
.scrolls::before{{display:none;position:sticky;left:0;width:max-content;font-size:.8rem;color:var(--faint);
  content:'wider than this screen: scrolls sideways \\2192'}}
@media screen and (max-width:{AT_LEAST_PX + 2 * _PADDING_PX - 1}px){{.scrolls::before{{display:block}}}}
"""
_PAGE = """\
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}
main{max-width:1060px;margin:0 auto;padding:1.2rem 16px 3rem}
h1{font-size:1.5rem;line-height:1.3;margin:.2rem 0 .4rem;text-wrap:balance}
h2{font-size:1.25rem;margin:2.4rem 0 .3rem;padding-top:1rem;border-top:1px solid var(--line)}
h3{font-size:1.02rem;margin:1.8rem 0 .2rem}
p,ul{margin:.3rem 0 .6rem;max-width:75ch}ul{padding-left:1.2rem}
.faint,caption,figcaption{color:var(--faint)}
.mood{display:inline-block;font-weight:600;border-radius:1rem;padding:.05rem .7rem;border:1.5px solid}
.bad{color:var(--lost)}.unsure{color:var(--unsure)}.good{color:var(--good)}
dl.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(7.2rem,1fr));gap:.6rem;margin:.8rem 0}
dl.figures div{background:var(--panel);border-radius:.5rem;padding:.5rem .7rem}
dl.figures dt{font-size:.8rem;color:var(--faint)}
dl.figures dd{margin:0;font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto;margin:.3rem 0}
figure{margin:.6rem 0 0}figure svg{display:block;width:100%;min-width:var(--at-least);height:auto}
figcaption{font-size:.85rem}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums;min-width:60%}
caption{text-align:left;padding:.1rem 0 .3rem}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
th,td{text-align:left;padding:.25rem .9rem .25rem 0;border-bottom:1px solid var(--grid);vertical-align:top}
th{font-weight:600;border-bottom-color:var(--line);white-space:nowrap}
td.n,th.n{text-align:right}td.n{white-space:nowrap}
tbody th{font-weight:400;border-bottom-color:var(--grid)}
nav ul{columns:2 16rem}
details{margin-top:2.5rem;border-top:1px solid var(--line);padding-top:.8rem}summary{cursor:pointer}
a{color:inherit}
@media print{main{max-width:none;padding:0}figure svg,.scrolls table{min-width:0}.wide{overflow:visible}
  figure,tr{break-inside:avoid}h2,h3{break-after:avoid}details{display:none}}
"""
PAGE = _SCROLLING + _PAGE
