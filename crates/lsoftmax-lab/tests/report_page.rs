//! The page, read back.

use lsoftmax_lab::figures::{Chart, Figure, FigureError, Page, Scale, Series, Table};
use roxmltree::{Document, ParsingOptions};

fn page() -> Page {
    let series = vec![Series { name: "<m> = 2".into(), points: vec![(0, 1.0), (9, 0.5)] }];
    let chart = Chart { title: "Loss".into(), scale: Scale::Linear, series, ..Chart::default() };
    let picture = chart.draw().unwrap();
    Page {
        title: "A & B </title><script>alert(1)</script>".into(),
        paragraphs: vec!["1 < 2".into(), "<img src=x onerror=alert(1)>".into()],
        tables: vec![Table {
            caption: "<Test> error".into(),
            head: vec!["m".into(), "error".into()],
            rows: vec![vec!["1".into(), "<b>0.4 %".into()], vec!["2".into(), "0.3 %".into()]],
        }],
        figures: vec![Figure { caption: "Loss & more".into(), picture }],
        command: "lsoftmax train 'a b' \\\n  > out && echo \"done\"".into(),
    }
}

#[test]
fn the_page_holds_every_text_as_it_was_given() {
    let page = page();
    let html = page.html().unwrap();
    // The page is also well-formed XML, and an XML parser is stricter than a browser.
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&html, options).unwrap();
    let texts = |tag: &str| -> Vec<String> {
        let nodes = document.descendants().filter(|node| node.tag_name().name() == tag);
        nodes.map(|node| node.text().unwrap_or("").to_owned()).collect()
    };
    assert_eq!(texts("title"), [page.title.as_str()]);
    assert_eq!(texts("h1"), [page.title.as_str()]);
    assert_eq!(texts("p"), page.paragraphs);
    assert_eq!(texts("caption"), ["<Test> error"]);
    assert_eq!(texts("th"), page.tables[0].head);
    assert_eq!(texts("td"), page.tables[0].rows.concat());
    assert_eq!(texts("figcaption"), ["Loss & more"]);
    assert_eq!(texts("code"), [page.command.as_str()]);
    assert_eq!(texts("svg").len(), 1);
}

#[test]
fn the_page_needs_nothing_else() {
    let html = page().html().unwrap();
    assert!(!html.contains("<script") && !html.contains("<img") && !html.contains("<link"));
    assert_eq!(html.matches("http").count(), 1, "only the name of SVG's namespace");
    assert_eq!(html, page().html().unwrap());
}

#[test]
fn characters_that_html_forbids_are_replaced() {
    let page = Page { title: "a\u{0}b\u{1b}\t\u{ffff}c".into(), ..Page::default() };
    let html = page.html().unwrap();
    assert!(html.contains("<h1>a\u{fffd}b\u{fffd}\t\u{fffd}c</h1>"), "{html}");
}

#[test]
fn a_row_must_have_one_cell_per_column() {
    let mut page = page();
    page.tables[0].rows[1].pop();
    let error = page.html().unwrap_err();
    assert!(
        matches!(error, FigureError::TableRow { row: 2, found: 1, expected: 2, .. }),
        "{error}"
    );
}

#[test]
fn writing_replaces_the_page_and_leaves_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/page.html");
    Page { title: "first".into(), ..Page::default() }.write(&path).unwrap();
    page().write(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page().html().unwrap());
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

    let error = page().write(path.parent().unwrap()).unwrap_err().to_string();
    assert!(error.contains("new: cannot be written"), "{error}");
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        1,
        "no temporary file is left"
    );
}
