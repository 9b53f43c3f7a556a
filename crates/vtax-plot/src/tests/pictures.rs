//! Conversion of each sample chart to a picture.

use super::{samples::all, *};

#[test]
fn each_chart_is_accessible_and_needs_no_script() {
    for (name, chart) in all() {
        let svg = drawn(&chart);
        let tree = roxmltree::Document::parse(svg.as_str()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let root = tree.root_element();
        assert_eq!(root.attribute("role"), Some("img"), "{name}");
        assert_eq!(root.first_element_child().and_then(|title| title.text()), Some(&*chart.heading().title()));
        assert!(root.children().any(|child| child.has_tag_name("desc") && child.text().is_some()), "{name}");
        for node in tree.descendants() {
            assert!(!["script", "foreignObject", "image", "a"].contains(&node.tag_name().name()), "{name}");
            // Several pictures in a page would share IDs.
            assert_eq!(node.attribute("id"), None, "{name}");
        }
    }
}

#[test]
fn a_separate_file_depends_on_no_page() {
    for (name, chart) in all() {
        for theme in [Theme::Light, Theme::Dark] {
            let file = drawn(&chart).standalone(theme);
            for left in ["currentColor", "var(", "Canvas"] {
                assert!(!file.as_str().contains(left), "{name}: {left}");
            }
        }
    }
}

#[test]
fn a_plotter_draws_the_same_each_time() {
    let first: Vec<String> = all().iter().map(|(_, chart)| drawn(chart).as_str().to_owned()).collect();
    let again: Vec<String> = all().iter().map(|(_, chart)| drawn(chart).as_str().to_owned()).collect();
    assert_eq!(first, again);
}

#[test]
fn pictures_have_ink() {
    for (name, chart) in all() {
        let png = drawn(&chart).standalone(Theme::Light).png(1.0).expect("a picture");
        assert!(png.len() > 5_000, "{name}: {} bytes", png.len());
    }
}
