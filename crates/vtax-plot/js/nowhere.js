// Stands in for d3-geo, of which vega-functions offers three functions to expressions that we never write.
function absent() {
  throw new Error('there are no maps here');
}

export {absent as geoArea, absent as geoBounds, absent as geoCentroid};
