//! Pages are self-contained, inert whatever is in a run, and small.

use super::*;

fn page_of(runs: &[Run]) -> String {
    page(&runs.iter().map(analyse).collect::<Vec<_>>(), &Options::default(), &[]).expect("it is drawn")
}

/// Returns the page without the script, which is the same in each page.
fn without_script(page: &str) -> String {
    let bare = page.replace(vtax_plot::PAGE_SCRIPT, "");
    assert!(bare.len() < page.len());
    bare
}

/// Returns the tags that are open at the end; a mismatched end tag fails.
fn open_tags(page: &str) -> Vec<&str> {
    const EMPTY: [&str; 2] = ["meta", "!doctype"];
    let mut open = Vec::new();
    for (at, _) in page.match_indices('<') {
        let whole = page[at + 1..].split('>').next().unwrap_or_default();
        let tag = whole.split([' ', '\n']).next().unwrap_or_default();
        match tag.strip_prefix('/') {
            None if whole.ends_with('/') => {}
            Some(ended) => assert_eq!(open.pop(), Some(ended), "at {at}: {}", &page[at..(at + 80).min(page.len())]),
            None if EMPTY.contains(&tag) => {}
            None => open.push(tag),
        }
    }
    open
}

#[test]
fn a_page_is_self_contained() {
    // Every fifth: drawing all charts takes half a minute.
    for document in DOCUMENTS.iter().step_by(5) {
        let page = page(std::slice::from_ref(document), &Options::default(), &[]).expect("it is drawn");
        let page = without_script(&page).replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert_eq!(open_tags(&page), [""; 0], "{}", document.id);
        assert!(page.contains("default-src 'none'"));
        for address in ["http:", "https:", "src=", "url(http", "@import"] {
            assert!(!page.contains(address), "{address} in {}", document.id);
        }
    }
}

/// The name of a study, a host or a link is only text in the page.
#[test]
fn hostile_text_is_inert() {
    let mut run = built_in("demo");
    let hostile = "</title></script><script>alert(1)</script>\u{202e}\x1b[2J\"' onload=x &amp;";
    run.header.study.title = hostile.into();
    run.header.environment.hostname = hostile.into();
    run.header.environment.kernel = hostile.into();
    run.failures = vec![Failure { cell: 0, arm: Arm::A, round: 1, error: hostile.into(), partial: None }];
    let page = without_script(&page_of(&[run]));
    assert_eq!(open_tags(&page), [""; 0]);
    assert!(!page.contains("<script>alert") && !page.contains(['\u{202e}', '\x1b']), "{page}");
    assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("&amp;amp;"), "{page}");
}

#[test]
fn several_results_are_linked() {
    let page = page_of(&[built_in("demo"), built_in("sparc-t7-1")]);
    for id in ["demo-20260102-030405-5eed", "sparc-t7-1-20260102-030405-5eed"] {
        assert!(page.contains(&format!("href=\"#{id}\"")) && page.contains(&format!("<article id=\"{id}\"")), "{id}");
    }
}

/// Runs with a cell in common with the first are compared before the results themselves.
#[test]
fn several_results_are_compared_with_the_first() {
    let later = |id: &str| {
        let mut run = built_in("demo");
        run.header.id = id.into();
        run
    };
    let page = page_of(&[built_in("demo"), later("demo-2"), built_in("ip-instances"), later("demo-3")]);
    let at = |id: &str| page.find(&format!("<article id=\"{id}\""));
    let first = "demo-20260102-030405-5eed";
    let against = |id: &str| at(&format!("{id}-against-{first}"));
    assert!(against("demo-2").is_some() && against("demo-2") < against("demo-3") && against("demo-3") < at(first));
    assert!(!page.contains("ip-instances-20260102-030405-5eed-against"), "they have nothing in common");
}

#[test]
fn each_row_of_a_page_s_table_has_as_many_cells() {
    let page = page_of(&[built_in("demo"), built_in("sparc-t7-1"), with_failures()]);
    for table in page.split("<table>").skip(1).map(|rest| rest.split("</table>").next().expect("it ends")) {
        let widths = table.split("<tr").skip(1).map(|row| {
            let cells = row.split("<td").count() + row.split("<th ").count() - 2;
            let spans = row.split("colspan=\"").skip(1).map(|span| {
                span.split('"').next().and_then(|count| count.parse::<usize>().ok()).expect("a number") - 1
            });
            cells + spans.sum::<usize>()
        });
        let widths: Vec<usize> = widths.collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{widths:?}: {table}");
    }
}

#[test]
fn a_page_of_a_thousand_cells_is_below_two_megabytes() {
    let run = of_text(
        r#"
        id = "large"
        title = "Large"
        baseline = "native"
        [matrix]
        methods = ["native", "veth", "bridge", "macvlan", "vxlan"]
        mtu = [1500, 9000]
        transports = ["tcp", "udp"]
        tests = ["rr", "stream"]
        streams = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25]
        [plan]
        samples = 2
        duration = "500ms"
        "#,
    );
    assert_eq!(run.header.study.cells.len(), 1000);
    let page = page_of(&[run]);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
}
