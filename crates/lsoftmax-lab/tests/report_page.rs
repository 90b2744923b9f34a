//! The page, read back.

use lsoftmax_lab::figures::{Chart, Figure, Report, ReportError, Scale, Series, Table};
use roxmltree::{Document, ParsingOptions};

fn report() -> Report {
    let series = vec![Series { name: "<m> = 2".into(), points: vec![(0, 1.0), (9, 0.5)] }];
    let picture = Chart { title: "Loss".into(), scale: Scale::Linear, series }.draw().unwrap();
    Report {
        title: "A & B </title><script>alert(1)</script>".into(),
        paragraphs: vec!["1 < 2".into(), "<img src=x onerror=alert(1)>".into()],
        tables: vec![Table {
            caption: "<Test> error".into(),
            head: vec!["m".into(), "error".into()],
            rows: vec![vec!["1".into(), "<b>0.4 %".into()], vec!["2".into(), "0.3 %".into()]],
        }],
        figures: vec![Figure { caption: "Loss & more".into(), picture }],
        command: "lsoftmax report a 'b c' \\\n  > out && echo \"done\"".into(),
    }
}

#[test]
fn the_page_holds_every_text_as_it_was_given() {
    let report = report();
    let html = report.html().unwrap();
    // The page is written so that an XML parser reads it too, which forgives less than a browser.
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let page = Document::parse_with_options(&html, options).unwrap();
    let texts = |tag: &str| -> Vec<String> {
        let nodes = page.descendants().filter(|node| node.tag_name().name() == tag);
        nodes.map(|node| node.text().unwrap_or("").to_owned()).collect()
    };
    assert_eq!(texts("title"), [report.title.as_str()]);
    assert_eq!(texts("h1"), [report.title.as_str()]);
    assert_eq!(texts("p"), report.paragraphs);
    assert_eq!(texts("caption"), ["<Test> error"]);
    assert_eq!(texts("th"), report.tables[0].head);
    assert_eq!(texts("td"), report.tables[0].rows.concat());
    assert_eq!(texts("figcaption"), ["Loss & more"]);
    assert_eq!(texts("code"), [report.command.as_str()]);
    assert_eq!(texts("svg").len(), 1);
}

#[test]
fn the_page_needs_nothing_else() {
    let html = report().html().unwrap();
    assert!(!html.contains("<script") && !html.contains("<img") && !html.contains("<link"));
    assert_eq!(html.matches("http").count(), 1, "only the name of SVG's namespace");
    assert_eq!(html, report().html().unwrap());
}

#[test]
fn a_row_must_have_one_cell_a_column() {
    let mut report = report();
    report.tables[0].rows[1].pop();
    let error = report.html().unwrap_err();
    assert!(matches!(error, ReportError::Row { row: 2, found: 1, expected: 2, .. }), "{error}");
}

#[test]
fn writing_replaces_the_page_and_leaves_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/report.html");
    Report { title: "first".into(), ..Report::default() }.write(&path).unwrap();
    report().write(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), report().html().unwrap());
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

    let error = report().write(path.parent().unwrap()).unwrap_err().to_string();
    assert!(error.contains("new: cannot be written"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
}
