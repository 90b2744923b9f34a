//! Galleries against the definition: the angle to the nearest face of every person, in f64.

use std::collections::BTreeMap;

use lsoftmax_faces::{Embeddings, Gallery};

/// Numbers between -1 and 1 that repeat for a seed.
fn random(count: usize, mut state: u64) -> Vec<f32> {
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn angle(one: &[f32], other: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    (dot(one, other) / (dot(one, one) * dot(other, other)).sqrt())
        .clamp(-1.0, 1.0)
        .acos()
        .to_degrees()
}

#[test]
fn the_nearest_people_are_those_of_the_definition() {
    // More faces than a task has, more probes than are compared at a time, people in several places of the gallery.
    let (width, faces, probes) = (37, 1100, 70);
    let (rows, asked) = (random(faces * width, 1), random(probes * width, 2));
    let names: Vec<String> = (0..faces).map(|face| format!("{:03}", face * 7 % 400)).collect();
    let gallery = Gallery::new(&Embeddings::new(width, rows.clone()).unwrap(), &names).unwrap();
    let found = gallery.identify(&Embeddings::new(width, asked.clone()).unwrap(), 5).unwrap();
    assert_eq!(found.len(), probes);
    for (probe, found) in asked.chunks_exact(width).zip(found) {
        let mut nearest: BTreeMap<&String, f64> = BTreeMap::new();
        for (row, name) in rows.chunks_exact(width).zip(&names) {
            let least = nearest.entry(name).or_insert(180.0);
            *least = least.min(angle(row, probe));
        }
        let mut expected: Vec<(&String, f64)> = nearest.into_iter().collect();
        expected.sort_by(|one, other| one.1.total_cmp(&other.1));
        for (found, (name, angle)) in found.nearest.iter().zip(&expected[..5]) {
            assert_eq!(found.name, **name);
            assert!((found.angle - angle).abs() < 1e-3, "{} and {angle}", found.angle);
        }
    }
}

#[test]
fn people_at_the_same_angle_are_in_the_order_of_their_names() {
    let names: Vec<String> = ["b", "a", "c"].map(String::from).to_vec();
    let same = Embeddings::new(2, vec![3.0, 4.0, 0.6, 0.8, 0.0, -1.0]).unwrap();
    let gallery = Gallery::new(&same, &names).unwrap();
    let found = gallery.identify(&Embeddings::new(2, vec![6.0, 8.0]).unwrap(), 2).unwrap();
    let order: Vec<&str> = found[0].nearest.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(order, ["a", "b"]);
}
