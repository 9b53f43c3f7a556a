//! Vega-Lite specifications as data.

use super::samples::all;

#[test]
fn specifications() {
    for (name, chart) in all() {
        let mut lite = chart.lite();
        // Identical in all charts, and covered by the pictures.
        lite.as_object_mut().expect("an object").remove("config");
        insta::assert_snapshot!(name, serde_json::to_string_pretty(&lite).expect("JSON"));
    }
}
