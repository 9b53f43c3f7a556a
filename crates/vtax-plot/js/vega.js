// The parts of Vega that our charts need, instead of the package `vega`, which also has maps, forces, trees,
// regressions and word clouds. Vega-Lite's imports of `vega` are resolved to this file, too.
import {transforms} from 'vega-dataflow';
import * as common from 'vega-transforms';
import * as layout from 'vega-view-transforms';
import * as encode from 'vega-encode';

Object.assign(transforms, common, layout, encode);

export {hasOwnProperty, isObject, isString, stringValue} from 'vega-util';
export {parse} from 'vega-parser';
export {View} from 'vega-view';
export {resetSVGDefIds, textMetrics} from 'vega-scenegraph';
export {expressionInterpreter} from 'vega-interpreter';
