//! Pictures read back by an XML parser.
#![allow(dead_code)] // each test uses a part

use roxmltree::{Document, Node};

/// An element's attribute as a number.
pub fn number(node: &Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("{name} of {node:?}"))
}

/// All elements of a kind.
pub fn all<'a, 'input>(document: &'a Document<'input>, tag: &'a str) -> Vec<Node<'a, 'input>> {
    document
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", tag)))
        .collect()
}

/// All text of an element.
pub fn text(node: &Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

/// The points of a polyline.
pub fn points(node: &Node<'_, '_>) -> Vec<(f64, f64)> {
    let pair = |pair: &str| {
        let (x, y) = pair.split_once(',').expect("x,y");
        (x.parse().expect("x"), y.parse().expect("y"))
    };
    node.attribute("points").expect("points").split(' ').map(pair).collect()
}

/// The rectangles of a path: left, top, right, bottom.
pub fn rectangles(node: &Node<'_, '_>) -> Vec<[f64; 4]> {
    let path = node.attribute("d").expect("d").trim_end_matches('z');
    let rectangle = |text: &str| {
        let numbers: Vec<f64> = text
            .trim_start_matches('M')
            .split([' ', 'h', 'v'])
            .map(|number| number.parse().unwrap_or_else(|_| panic!("{text}")))
            .collect();
        let [left, top, width, height, back] = numbers[..] else { panic!("{text}") };
        assert_eq!(back, -width);
        [left, top, left + width, top + height]
    };
    path.split('z').map(rectangle).collect()
}

/// The value at a place of a horizontal axis, from the labels of its ticks.
pub fn value_at(document: &Document<'_>) -> impl Fn(f64) -> f64 {
    let tick = |text: &Node<'_, '_>| {
        let value: f64 = text.text()?.replace('−', "-").parse().ok()?;
        (text.attribute("text-anchor") == Some("middle")).then(|| (value, number(text, "x")))
    };
    let ticks: Vec<(f64, f64)> = all(document, "text").iter().filter_map(tick).collect();
    let ((first, left), (last, right)) = (ticks[0], ticks[ticks.len() - 1]);
    move |x| first + (x - left) / (right - left) * (last - first)
}

/// Parses a picture, and checks that all of it is inside its view box.
pub fn read(svg: &str) -> Document<'_> {
    let document = Document::parse(svg).unwrap_or_else(|error| panic!("{error}"));
    let root = document.root_element();
    let (width, height) = (number(&root, "width"), number(&root, "height"));
    assert_eq!(root.attribute("viewBox"), Some(format!("0 0 {width} {height}").as_str()));
    let inside = |x: f64, y: f64, node: &Node<'_, '_>| {
        assert!(
            (0.0..=width).contains(&x) && (0.0..=height).contains(&y),
            "({x}, {y}) of {node:?}"
        );
    };
    for node in document.descendants().filter(Node::is_element) {
        match node.tag_name().name() {
            "svg" | "g" | "tspan" => {}
            "rect" => {
                let [x, y] = ["x", "y"]
                    .map(|name| node.attribute(name).map_or(0.0, |_| number(&node, name)));
                inside(x, y, &node);
                inside(
                    x + number(&node, "width") - 1e-9,
                    y + number(&node, "height") - 1e-9,
                    &node,
                );
            }
            "circle" => {
                let [x, y, r] = ["cx", "cy", "r"].map(|name| number(&node, name));
                inside(x - r, y - r, &node);
                inside(x + r, y + r, &node);
            }
            "line" => {
                let [x1, y1, x2, y2] = ["x1", "y1", "x2", "y2"].map(|name| number(&node, name));
                inside(x1, y1, &node);
                inside(x2, y2, &node);
            }
            "path" => rectangles(&node).iter().for_each(|[left, top, right, bottom]| {
                inside(*left, *top, &node);
                inside(*right, *bottom, &node);
            }),
            "polyline" | "polygon" => points(&node).iter().for_each(|(x, y)| inside(*x, *y, &node)),
            "text" => {
                let [x, y, size] = ["x", "y", "font-size"].map(|name| number(&node, name));
                let wide = size * 0.55 * text(&node).chars().count() as f64;
                let left = match node.attribute("text-anchor") {
                    Some("start") => x,
                    Some("middle") => x - wide / 2.0,
                    Some("end") => x - wide,
                    other => panic!("{other:?}"),
                };
                let corners = [(left, y - size), (left + wide, y + size / 3.0)];
                match node.attribute("transform") {
                    None => corners.iter().for_each(|(x, y)| inside(*x, *y, &node)),
                    Some(rotated) => {
                        assert_eq!(rotated, format!("rotate(-90 {x} {y})"));
                        // (dx, dy) from the centre of the rotation becomes (dy, −dx).
                        let turned = corners.map(|corner| (x + corner.1 - y, y - (corner.0 - x)));
                        turned.iter().for_each(|(x, y)| inside(*x, *y, &node));
                    }
                }
            }
            other => panic!("<{other}> is not expected"),
        }
    }
    document
}
