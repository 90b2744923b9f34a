//! The page, read back.

use lsoftmax_lab::figures::{
    Cell, Chart, Content, Figure, FigureError, Page, Picture, Scale, Section, Series, Table,
};
use roxmltree::{Document, Node, ParsingOptions};

fn picture() -> Picture {
    let series = vec![Series::by_step("<m> = 2", [(0, 1.0), (9, 0.5)])];
    let chart = Chart { title: "Loss".into(), scale: Scale::Linear, series, ..Chart::default() };
    chart.draw().unwrap()
}

fn table() -> Table {
    Table {
        id: "table-1".into(),
        caption: "<Test> error".into(),
        head: vec!["m".into(), "error".into()],
        rows: vec![
            vec!["1".into(), "<b>0.4 %".into()],
            vec!["2".into(), Cell::linked("0.3 %", "runs/100 % \"m\" #2?/a&b")],
            vec![Cell::linked("mean", "#figure-1"), "0.35 %".into()],
        ],
        note: "a <note>".into(),
    }
}

fn page() -> Page {
    let figure = Figure {
        id: "figure-1".into(),
        files: vec!["figures/loss.svg".into(), "figures/loss.png".into()],
        ..Figure::new("Loss & more", picture())
    };
    Page {
        title: "A & B </title><script>alert(1)</script>".into(),
        introduction: vec!["1 < 2".into(), "<img src=x onerror=alert(1)>".into()],
        sections: vec![
            Section::new("errors", "Errors & <more>").paragraph("a < b").table(table()),
            Section::new("curves", "Curves").figure(figure),
        ],
        command: "lsoftmax train 'a b' \\\n  > out && echo \"done\"".into(),
    }
}

/// The page as XML, which it is too: an XML parser is stricter than a browser.
fn read(html: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(html, options).unwrap()
}

/// All text of the elements of a kind.
fn texts(document: &Document<'_>, tag: &str) -> Vec<String> {
    let nodes = document.descendants().filter(|node| node.tag_name().name() == tag);
    let text = |node: Node<'_, '_>| {
        node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
    };
    nodes.map(text).collect()
}

#[test]
fn the_page_holds_every_text_as_it_was_given() {
    let page = page();
    let html = page.html().unwrap();
    let document = read(&html);
    let texts = |tag: &str| texts(&document, tag);
    assert_eq!(texts("title"), [page.title.as_str()]);
    assert_eq!(texts("h1"), [page.title.as_str()]);
    assert_eq!(texts("h2"), ["Errors & <more>", "Curves", "How to run this again"]);
    assert_eq!(texts("p"), ["1 < 2", "<img src=x onerror=alert(1)>", "a < b", "a <note>"]);
    assert_eq!(texts("caption"), ["<Test> error"]);
    assert_eq!(texts("th"), table().head);
    let cells: Vec<String> = table().rows.concat().into_iter().map(|cell| cell.text).collect();
    assert_eq!(texts("td"), cells);
    assert_eq!(texts("figcaption"), ["Loss & more SVG PNG"]);
    assert_eq!(texts("code"), [page.command.as_str()]);
    assert_eq!(texts("svg").len(), 1);
}

#[test]
fn links_lead_to_anchors_and_files() {
    let html = page().html().unwrap();
    let document = read(&html);
    let attributes = |name: &'static str| -> Vec<&str> {
        document.descendants().filter_map(|node| node.attribute(name)).collect()
    };
    assert_eq!(attributes("id"), ["errors", "table-1", "curves", "figure-1"]);
    let encoded = "runs/100%20%25%20%22m%22%20%232%3F/a%26b";
    let files = ["figures/loss.svg", "figures/loss.png"];
    let links = ["#errors", "#curves", encoded, "#figure-1", files[0], files[1]];
    assert_eq!(attributes("href"), links);
}

#[test]
fn links_that_lead_elsewhere_or_nowhere_are_errors() {
    let addresses = [
        "javascript:alert(1)",
        "https://example.org",
        "//example.org",
        "/etc/passwd",
        "#missing",
        "#",
        "",
        "a\\b",
        " javascript:alert(1)",
    ];
    for address in addresses {
        let mut page = page();
        let Content::Table(table) = &mut page.sections[0].content[1] else { panic!() };
        table.rows[0][0] = Cell::linked("here", address);
        let error = page.html().unwrap_err();
        assert!(matches!(&error, FigureError::Link(link) if link == address), "{error}");
        let mut page = self::page();
        let Content::Figure(figure) = &mut page.sections[1].content[0] else { panic!() };
        figure.files = vec![address.into()];
        assert!(matches!(page.html(), Err(FigureError::Link(_))), "{address}");
    }
}

#[test]
fn anchors_are_unique_and_fit_into_links() {
    for id in ["errors", "figure-1", "", "a b", "\"><script>"] {
        let mut page = page();
        page.sections.push(Section::new(id, "another"));
        assert!(matches!(page.html(), Err(FigureError::Anchor(_))), "{id}");
    }
}

#[test]
fn the_page_needs_nothing_else() {
    let html = page().html().unwrap();
    assert_eq!(html.matches("<script").count(), 1, "only the page's own");
    assert!(html.contains("<script>//<![CDATA["), "an inline script");
    assert!(!html.contains("<img") && !html.contains("<link"));
    assert!(!read(&html).descendants().any(|node| node.has_attribute("src")));
    assert!(!html.contains("@import") && !html.contains("url("));
    assert!(!html.contains("fetch(") && !html.contains("import(") && !html.contains("innerHTML"));
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
    let Content::Table(table) = &mut page.sections[0].content[1] else { panic!() };
    table.rows[1].pop();
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
