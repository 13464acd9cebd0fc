#include "report/page_style.hpp"

namespace lockstep::launch {

// The colors of curves differ by lightness as well, so that people with color vision deficiencies tell them
// apart, and stand out from the background; a test computes both.
std::string_view page_style() {
  return R"css(
:root{color-scheme:light dark;--back:#fff;--card:#fff;--front:#1b1f24;--quiet:#586069;--rule:#d8dde3;--grid:#e8ebef;
--c0:#0b62b0;--c1:#b53a00;--c2:#1f9650;--c3:#b05a9c;--c4:#d68000;--c5:#2a9af5;--c6:#4c5358;--c7:#3d0f5e;--bad:#c62828;--rest:#aab2bb}
@media screen and (prefers-color-scheme:dark){:root{--back:#121518;--card:#1a1e22;--front:#e7e9ec;--quiet:#9da7b1;--rule:#343b42;--grid:#2a3036;
--c0:#4f9df6;--c1:#f0803c;--c2:#5fe88a;--c3:#c777b0;--c4:#ffd54a;--c5:#b8e0ff;--c6:#aeb0a8;--c7:#7a5cff;--bad:#ff7b72;--rest:#565f68}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;padding:24px 16px 40px;max-width:1128px;background:var(--back);color:var(--front);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:26px;line-height:1.25;margin:0 0 4px}
h2{font-size:18px;margin:36px 0 12px}
h3{font-size:15px;margin:20px 0 8px}
p{margin:0 0 8px}
.quiet,.note{color:var(--quiet)}
.note{font-size:13px;margin:6px 0 0}
.lead{max-width:78ch;margin-top:14px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:10px;margin:20px 0 0}
.tile{border:1px solid var(--rule);border-radius:8px;padding:10px 12px;background:var(--card);min-width:0}
.tile b{display:block;font-size:21px;line-height:1.25;font-variant-numeric:tabular-nums}
.tile span{color:var(--quiet);font-size:13px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:16px}
figure{margin:0;border:1px solid var(--rule);border-radius:8px;padding:12px 12px 10px;background:var(--card);min-width:0;break-inside:avoid}
figure+.grid,.grid+figure{margin-top:16px}
figcaption{font-weight:600;margin-bottom:4px}
figcaption small{font-weight:400;color:var(--quiet);font-size:13px}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;list-style:none;padding:0;margin:0 0 4px;font-size:13px}
.legend li{min-width:0}
svg.key{width:28px;height:10px;margin-right:6px;vertical-align:middle}
svg.box{width:10px;height:10px;margin-right:8px}
svg.sign{width:10px;height:10px;margin-right:6px;vertical-align:baseline}
svg.plot{display:block;width:100%;height:auto}
svg.plot.narrow{display:none;max-width:560px;margin:0 auto}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif;fill:var(--quiet);font-variant-numeric:tabular-nums}
.grid-line{stroke:var(--grid)}
.axis{stroke:var(--rule)}
.curve{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.raw{fill:none;stroke-width:1;opacity:.3;stroke-linejoin:round}
.many .raw{opacity:.12}
.dot{stroke:var(--card);stroke-width:1}
path.c0{stroke:var(--c0)}path.c1{stroke:var(--c1)}path.c2{stroke:var(--c2)}path.c3{stroke:var(--c3)}
path.c4{stroke:var(--c4)}path.c5{stroke:var(--c5)}path.c6{stroke:var(--c6)}path.c7{stroke:var(--c7)}
circle.c0{fill:var(--c0)}circle.c1{fill:var(--c1)}circle.c2{fill:var(--c2)}circle.c3{fill:var(--c3)}
circle.c4{fill:var(--c4)}circle.c5{fill:var(--c5)}circle.c6{fill:var(--c6)}circle.c7{fill:var(--c7)}
.p0{fill:var(--c0)}.p1{fill:var(--c1)}.p2{fill:var(--c2)}.p3{fill:var(--c3)}.p4{fill:var(--c4)}.p5{fill:var(--c5)}.p6{fill:var(--c6)}
.p7{fill:var(--c7)}.p8{fill:var(--rest)}.light{fill-opacity:.55}
.mark line{stroke-width:1.5;stroke-dasharray:3 3}
.restart line{stroke:var(--c7)}.restart path{fill:var(--c7)}
.recovery line{stroke:var(--c2)}.recovery path{fill:var(--c2)}
.failure line{stroke:var(--bad)}.failure path{fill:var(--bad)}
.checkpoint path{fill:var(--quiet)}
.bad{stroke:var(--bad);stroke-width:1.5;fill:none}
.strip rect{fill:transparent}
.strip line{stroke:var(--quiet);visibility:hidden}
.strip circle{visibility:hidden}
.strip:hover line,.strip:hover circle{visibility:visible}
.bars{display:grid;grid-template-columns:auto minmax(0,1fr);gap:6px 12px;align-items:center;margin-bottom:12px}
.bar-name{font-size:13px;max-width:34vw}
svg.bar{display:block;width:100%;height:24px;border-radius:4px}
.part{stroke:var(--card);stroke-width:.5}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;overflow-wrap:break-word;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:5px 14px 5px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid);font-weight:400}
thead th{color:var(--quiet);font-size:13px;white-space:nowrap}
.numbers td,.numbers thead th:not(:first-child){text-align:right}
.numbers td{white-space:nowrap}
td.text{max-width:60ch;min-width:24ch;white-space:normal;text-align:left;overflow-wrap:anywhere}
.different td{max-width:36ch;min-width:8ch;overflow-wrap:anywhere}
.different thead th:not(:first-child){white-space:normal;min-width:12ch;max-width:22ch;overflow-wrap:anywhere}
.arguments{columns:2 380px;column-gap:32px;font-size:13px;margin:0}
.arguments div{display:grid;grid-template-columns:minmax(0,1.1fr) minmax(0,1fr);gap:12px;padding:3px 0;border-bottom:1px solid var(--grid);break-inside:avoid}
.arguments dt{color:var(--quiet)}
.arguments dd{margin:0}
ul.plain{padding-left:18px;margin:0}
.warning{border-left:3px solid var(--bad);padding:2px 0 2px 12px;margin:12px 0}
footer{margin-top:40px;color:var(--quiet);font-size:13px}
@media (max-width:960px){svg.plot.wide{display:none}svg.plot.narrow{display:block}}
@media (max-width:480px){body{padding:16px 12px 32px}h1{font-size:22px}.tiles{grid-template-columns:repeat(auto-fit,minmax(112px,1fr))}
.tile b{font-size:17px}.arguments div{gap:8px}}
@media print{body{padding:0;font-size:11pt;max-width:none}.strip{display:none}.scroll{overflow:visible}
table{width:100%;font-size:8pt}th,td,thead th,td.text,.numbers td,.different td,.different thead th:not(:first-child){white-space:normal;
min-width:0;max-width:none;padding-right:6px;overflow-wrap:anywhere}
.grid{grid-template-columns:1fr 1fr}svg.plot.wide{display:none}svg.plot.narrow{display:block;max-width:480px}h2{break-after:avoid}
figure,.tile{border-color:#ccc}tr{break-inside:avoid}}
)css";
}

}  // namespace lockstep::launch
