// Script for QuickJS: compiles a Vega-Lite specification to Vega, and draws it as SVG.
import './polyfills.js';
import {View, expressionInterpreter, parse, resetSVGDefIds, textMetrics} from 'vega';
import {compile} from 'vega-lite';
import widths from './widths.json';
import {version as vega} from './node_modules/vega/package.json';
import {version as interpreter} from './node_modules/vega-interpreter/package.json';
import {version as lite} from './node_modules/vega-lite/package.json';

// QuickJS has no canvas to measure text, so the widths are those of the font in which PNG files are drawn.
textMetrics.width = (item, text) => {
  const {advances, other} = /^(bold|[6-9]00)/.test(item.fontWeight) ? widths.bold : widths.regular;
  let width = 0;
  for (const character of String(text ?? '')) width += advances[character] ?? other;
  return width * (item.fontSize ?? 11);
};

const quiet = {level: () => quiet, error: fail, warn: ignore, info: ignore, debug: ignore};

function ignore() {
  return quiet;
}

function fail(...words) {
  throw new Error(words.join(' '));
}

// Charts of vtax load nothing.
const loader = {load: refuse, sanitize: refuse, http: refuse, file: refuse};

function refuse() {
  return Promise.reject(new Error('a chart loads nothing'));
}

function compiled(text) {
  return compile(JSON.parse(text), {logger: quiet}).spec;
}

globalThis.vtaxCompile = text => JSON.stringify(compiled(text));

globalThis.vtaxDraw = async text => {
  resetSVGDefIds();
  const runtime = parse(compiled(text), null, {ast: true});
  const view = new View(runtime, {expr: expressionInterpreter, loader, logger: quiet, renderer: 'none'});
  try {
    // The legend's number of columns depends on the width, and the space for the legend is known only after that.
    await view.runAsync();
    await view.resize().runAsync();
    return await view.toSVG();
  } finally {
    view.finalize();
  }
};

globalThis.vtaxVersions = JSON.stringify({vega, 'vega-interpreter': interpreter, 'vega-lite': lite});
