//! The page in a browser: its script, and its colours in light and dark. Needs `chromium`.
//!
//! A test script is appended to a copy of the page and writes what it finds into the document, which
//! Chromium prints.

use std::process::Command;

use lsoftmax_lab::figures::{
    Cell, Chart, Embedding, Figure, HeatMap, Page, Panel, Section, Series, Table, chart_row,
    heat_maps, scatter,
};

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'&";

fn page() -> Page {
    let chart = |title: &str| Chart {
        title: title.into(),
        x_title: "step".into(),
        series: vec![
            Series::by_step("softmax", [(0, 9.0), (500, 4.0), (1000, 3.25)]),
            Series::by_step(HOSTILE, [(0, 8.0), (500, 3.0), (1000, 2.0)]),
        ],
        ..Chart::default()
    };
    let charts = chart_row(&[chart("Training"), chart("Test")]).unwrap();
    let (features, weights) = ([3.0, 0.0, 2.0, 0.1, 0.0, 4.0], [1.0, 0.0, 0.0, 1.0]);
    let embedding = Embedding::new(&features, &[0, 0, 1], &weights, 2).unwrap();
    let panel = Panel { title: "m = 2".into(), embedding };
    let dots = scatter(&[panel], &["cat".into(), "dog".into()]).unwrap();
    let matrix = HeatMap { title: "m = 4".into(), values: vec![0.9, -0.25, 0.5, 1.0] };
    let matrix = heat_maps(&[matrix], &["cat".into(), "dog".into()]).unwrap();
    let table = Table {
        caption: "Errors".into(),
        head: vec!["m".into(), "error".into()],
        rows: vec![vec!["2".into(), Cell::linked("0.3 %", "#pictures")]],
        note: "Means over runs.".into(),
        ..Table::default()
    };
    let section = Section::new("pictures", "Pictures")
        .figure(Figure::new("Curves", charts))
        .figure(Figure::new("Features", dots))
        .figure(Figure::new("Cosines", matrix));
    Page {
        title: "A page".into(),
        introduction: vec!["Text.".into()],
        sections: vec![Section::new("tables", "Tables").table(table), section],
        command: "lsoftmax report".into(),
    }
}

/// Collects errors, before the page's own script runs.
const ERRORS: &str = "<script>window.errors = [];\
    addEventListener('error', event => errors.push(event.message));\
    console.error = console.warn = (...text) => errors.push(text.join(' '));</script>";

/// Functions of the tests. `say` adds a line to the results.
const TOOLS: &str = r#"
const results = [];
const say = line => results.push(line);
const figures = [...document.querySelectorAll('figure svg')];
const series = (svg, name) => [...svg.querySelectorAll('[data-series]')].filter(g => g.dataset.series === name);
const visible = elements => elements.map(e => getComputedStyle(e).display !== 'none').join();
const toggle = (svg, name) => [...svg.querySelectorAll('[data-toggle]')].find(g => g.dataset.toggle === name);
const click = element => element.dispatchEvent(new MouseEvent('click', { bubbles: true }));
const press = (element, key) => element.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
const tip = document.querySelector('.tip');
const hover = (svg, x, y) => {
  const at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
  svg.dispatchEvent(new PointerEvent('pointermove', { clientX: at.x, clientY: at.y, bubbles: true }));
  return tip.hidden ? '(hidden)' : tip.textContent.replace('\n', ' / ');
};
const channels = text => text.match(/[\d.]+/g).map(Number).slice(0, 3);
const light = text => channels(text).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
"#;

const FINISH: &str = r#"
say('errors: ' + errors.join('; '));
const out = document.createElement('pre');
out.id = 'results';
out.textContent = results.join('\n');
document.body.replaceChildren(out);
"#;

/// The lines that a test script says, or `None` where Chromium is not installed.
fn run(script: &str, options: &[&str]) -> Option<Vec<String>> {
    if Command::new("chromium").arg("--version").output().is_err() {
        println!("skipped: `chromium` is not installed");
        return None;
    }
    let html = page().html().unwrap();
    let html = html.replacen("<head>", &format!("<head>{ERRORS}"), 1);
    let (start, end) = html.split_at(html.rfind("</body>").expect("a body"));
    let html = format!(
        "{start}<script>{TOOLS}\ntry {{ {script} }} catch (error) {{ errors.push(error); }}{FINISH}</script>{end}"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page.html");
    std::fs::write(&path, html).unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--window-size=1300,900", "--virtual-time-budget=2000"])
        .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
        .args(options)
        .arg("--dump-dom")
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    let document = String::from_utf8_lossy(&output.stdout);
    let results =
        document.split_once("<pre id=\"results\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (results, _) = results
        .unwrap_or_else(|| panic!("no results: {}", String::from_utf8_lossy(&output.stderr)));
    let plain = results.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(plain.lines().map(str::to_owned).collect())
}

#[test]
fn legends_hide_and_show_series_by_mouse_and_keyboard() {
    let script = format!(
        r#"
        const [charts, dots] = figures;
        for (const name of ["softmax", {HOSTILE:?}.replace('<\\/', '<' + '/')]) {{
            const entry = toggle(charts, name), curves = series(charts, name);
            say(curves.length + ' ' + visible(curves) + ' ' + entry.getAttribute('role') + ' ' + entry.tabIndex);
            click(entry);
            say(visible(curves) + ' ' + entry.getAttribute('aria-pressed'));
            press(entry, 'Enter');
            say(visible(curves) + ' ' + entry.getAttribute('aria-pressed'));
            press(entry, ' ');
            press(entry, 'a');
            say(visible(curves));
            click(entry);
        }}
        click(toggle(dots, 'cat'));
        say(visible(series(dots, 'cat')) + ' ' + visible(series(dots, 'dog')));
        const parts = [...dots.querySelectorAll('[data-part-of]')];
        say(parts.map(e => e.dataset.partOf) + ' ' + visible(parts));
        "#
    );
    let script = script.replace("</script>", "<\\\\/script>");
    let Some(results) = run(&script, &[]) else { return };
    let one = ["2 true,true button 0", "false,false false", "true,true true", "false,false"];
    let expected = [&one[..], &one[..], &["false true", "cat,dog false,true", "errors: "]].concat();
    assert_eq!(results, expected);
}

#[test]
fn values_are_shown_under_the_pointer() {
    let script = r#"
        const [charts, dots, matrix] = figures;
        const curve = charts.querySelector('[data-series=softmax] polyline').points;
        say(hover(charts, curve[1].x + 3, curve[1].y - 4));
        say(charts.querySelector('.spot').getAttribute('cx') == curve[1].x);
        click(toggle(charts, 'softmax'));
        say(hover(charts, curve[0].x, curve[0].y).includes('onerror'));
        say(hover(charts, 1, 1));
        const dot = series(dots, 'dog')[0].querySelector('circle');
        say(hover(dots, dot.cx.baseVal.value + 1, dot.cy.baseVal.value));
        const [left, top, right, bottom] = matrix.querySelector('[data-plot]').dataset.area.split(' ').map(Number);
        say(hover(matrix, right - 3, top + 3));
        say(hover(matrix, left + 3, bottom - 3));
        say(hover(matrix, left - 3, bottom - 3));
    "#;
    let Some(results) = run(script, &[]) else { return };
    let expected = [
        "softmax / step 500: 4",
        "true",
        "true",
        "(hidden)",
        "dog: (0, 4)",
        "cat, dog: −0.25",
        "dog, cat: 0.5",
        "(hidden)",
        "errors: ",
    ];
    assert_eq!(results, expected);
}

/// Says the background, and the lowest contrast of text, curves and dots with it.
const CONTRASTS: &str = r#"
    const paper = getComputedStyle(document.body).backgroundColor;
    const lowest = (selector, property) => Math.min(...[...document.querySelectorAll(selector)]
        .map(e => contrast(getComputedStyle(e)[property], paper)));
    say(light(paper) > 0.5 ? 'light' : 'dark');
    say(lowest('h1, h2, p, td, th, caption, figcaption, nav a, td a, pre, nav button', 'color').toFixed(1));
    say(lowest('svg text:not([class^=f-on])', 'fill').toFixed(1));
    say(Math.min(lowest('polyline[data-values]', 'stroke'), lowest('g[data-series][fill]', 'fill')).toFixed(1));
    say([...document.querySelectorAll('svg > rect:first-child')].every(e => getComputedStyle(e).fill === paper));
"#;

/// Checks what [`CONTRASTS`] says: a theme, and that everything is legible in it.
fn assert_legible(results: &[String], theme: &str) {
    assert_eq!(results[0], theme);
    let contrast = |at: usize| results[at].parse::<f64>().unwrap();
    assert!(contrast(1) >= 4.5 && contrast(2) >= 4.3, "text: {results:?}");
    assert!(contrast(3) >= 2.5, "data: {results:?}");
    assert_eq!(results[4], "true", "pictures have the colour of the page");
}

#[test]
fn text_and_data_are_legible_in_light_and_dark() {
    for (options, theme) in
        [(&[][..], "light"), (&["--blink-settings=preferredColorScheme=0"][..], "dark")]
    {
        let Some(results) = run(CONTRASTS, options) else { return };
        assert_legible(&results, theme);
        assert_eq!(results.last().unwrap(), "errors: ");
    }
}

#[test]
fn the_button_changes_between_light_and_dark() {
    let dark = ["--blink-settings=preferredColorScheme=0"];
    for (options, theme, label) in [(&[][..], "dark", "Light"), (&dark[..], "light", "Dark")] {
        let script = format!(
            "click(document.querySelector('nav button')); {CONTRASTS} say(document.querySelector('nav button').textContent);"
        );
        let Some(results) = run(&script, options) else { return };
        assert_legible(&results, theme);
        assert_eq!(results[5..], [label, "errors: "]);
    }
}

#[test]
fn a_narrow_window_has_no_horizontal_scroll_bar() {
    let script = "say(document.documentElement.scrollWidth <= innerWidth);";
    let Some(results) = run(script, &["--window-size=420,900"]) else { return };
    assert_eq!(results, ["true", "errors: "]);
}
