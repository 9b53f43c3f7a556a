//! Interactive version of a chart in a page.
//!
//! A page contains the style and the script once. Its Content-Security-Policy requires no more than `default-src
//! 'none'; style-src 'unsafe-inline'; script-src 'sha256-…'` with [`page_script_hash`]: the script evaluates no text
//! and loads nothing.

use std::fmt;

use serde_json::Value;

use crate::{palette::Theme, svg::Svg};

/// Script of a page: Vega, its expression interpreter and some lines of ours. Insert it between `<script>` and
/// `</script>` after all charts. It begins with the licences of its contents, so that a standalone page includes them
/// too.
pub const PAGE_SCRIPT: &str = include_str!("../bundle/page.min.js");

/// Returns the hash of the script for the page's Content-Security-Policy, `sha256-…`, to be put in single quotes.
pub fn page_script_hash() -> &'static str {
    include_str!("../bundle/page.min.js.sha256").trim_end()
}

/// Returns the colours of both themes and the style of tooltips, to be inserted between `<style>` and `</style>`. A
/// page that lets its reader choose a theme sets `data-theme` to `light` or `dark` on its root.
pub fn page_style() -> String {
    let (light, dark) = (Theme::Light.variables(), Theme::Dark.variables());
    format!(
        ":root{{{light}}}\
         @media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\
         @media screen{{:root[data-theme=dark]{{{dark}}}}}\
         .plot-figure{{margin:0;max-width:100%;color:var(--plot-ink)}}\
         .plot-figure svg{{display:block}}\
         @media screen{{.plot-figure{{overflow-x:auto}}.plot-figure>svg{{min-width:min(30rem,var(--plot-width))}}}}\
         .plot-figure .role-legend-entry{{cursor:pointer}}\
         .plot-tip{{position:fixed;z-index:9;pointer-events:none;max-width:20rem;padding:.35rem .6rem;\
         font:.8rem/1.4 system-ui,sans-serif;color:var(--plot-ink);background:var(--plot-ground);\
         border:1px solid currentColor;border-radius:.25rem;overflow-wrap:anywhere}}\
         @media print{{.plot-tip{{display:none}}.plot-figure{{break-inside:avoid}}}}"
    )
}

/// Compiled chart, which [`PAGE_SCRIPT`] makes interactive. Its expressions are parsed in the page and interpreted.
#[derive(Clone, Debug, PartialEq)]
pub struct PageSpec(Value);

impl PageSpec {
    pub(crate) fn new(mut value: Value) -> PageSpec {
        if let Some(spec) = value.as_object_mut() {
            spec.remove("$schema");
        }
        PageSpec(value)
    }

    /// Returns the Vega specification.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Returns the element of a page with the picture and its specification. On a phone the picture is wider than the
    /// page, so the keyboard can scroll it. The interactive chart fits the page.
    pub fn figure(&self, svg: &Svg) -> String {
        let svg = svg.as_str();
        format!(
            "<figure class=\"plot-figure\" tabindex=\"0\">{svg}<script type=\"application/json\" class=\"plot-spec\">{self}</script></figure>"
        )
    }
}

/// JSON that is safe in a `<script>` element of HTML: nothing in it ends the element or begins a comment.
impl fmt::Display for PageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = self.0.to_string();
        f.write_str(&json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use serde_json::json;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn the_hash_is_that_of_the_script() {
        let digest = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(PAGE_SCRIPT));
        assert_eq!(page_script_hash(), format!("sha256-{digest}"));
    }

    #[test]
    fn the_script_stays_in_its_element() {
        for end in ["</script", "<!--", "<script"] {
            assert!(!PAGE_SCRIPT.to_lowercase().contains(end), "{end}");
        }
        assert!(PAGE_SCRIPT.len() < 500_000, "{}", PAGE_SCRIPT.len());
    }

    #[test]
    fn a_specification_stays_in_its_element() {
        let spec = PageSpec::new(json!({"$schema": "x", "a": "</script><!--&"}));
        assert_eq!(spec.to_string(), r#"{"a":"\u003c/script\u003e\u003c!--\u0026"}"#);
        assert_eq!(serde_json::from_str::<Value>(&spec.to_string()).expect("JSON"), *spec.value());
    }
}
