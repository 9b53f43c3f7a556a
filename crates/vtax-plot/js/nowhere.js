// Replaces d3-geo. vega-functions offers three of its functions in expressions, and no chart of vtax uses them.
function absent() {
  throw new Error('there are no maps here');
}

export {absent as geoArea, absent as geoBounds, absent as geoCentroid};
