//! Heads in recipes.

use lsoftmax::{Margin, SampleRate};
use lsoftmax_lab::head::{HeadKind, HeadSettings};
use lsoftmax_lab::optimiser::{AdamW, Optimiser, Sgd};
use lsoftmax_lab::recipe::{Lambda, Recipe};

/// The recipe of MNIST with another line in place of `margin = 4`.
fn with(line: &str) -> String {
    let text = Recipe::built_in("mnist").unwrap().to_toml();
    let (before, after) = text.split_once("[head]\n").expect("heads are written as tables");
    let (_, after) = after.split_once("\n\n").expect("other tables follow");
    format!("{line}\n{before}\n{after}")
}

fn read(line: &str) -> Recipe {
    let text = with(line);
    Recipe::from_toml(&text, "mine.toml").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn refused(line: &str) -> String {
    Recipe::from_toml(&with(line), "mine.toml").unwrap_err().to_string()
}

fn head(kind: HeadKind, margin: Option<f64>, scale: Option<f64>) -> HeadSettings {
    HeadSettings::new(kind, margin, scale).unwrap()
}

#[test]
fn a_margin_alone_is_l_softmax() {
    let l_softmax = |m: f64| HeadSettings::l_softmax(Margin::new(m).unwrap());
    assert_eq!(read("margin = 4").head, l_softmax(4.0));
    assert_eq!(read("margin = 2.5").head, l_softmax(2.5));
    assert_eq!(read("margin = 1").head, head(HeadKind::Softmax, None, None));
    assert_eq!(read("margin = 4"), Recipe::built_in("mnist").unwrap());
}

#[test]
fn a_head_is_a_name_or_a_table() {
    for (line, expected) in [
        ("head = \"l-softmax\"", head(HeadKind::LSoftmax, Some(4.0), None)),
        ("head = \"softmax\"", head(HeadKind::LSoftmax, Some(1.0), None)),
        ("head = \"a-softmax\"", head(HeadKind::ASoftmax, Some(4.0), None)),
        ("head = \"cosface\"", head(HeadKind::CosFace, Some(0.35), Some(64.0))),
        ("head = \"arcface\"", head(HeadKind::ArcFace, Some(0.5), Some(64.0))),
        ("head = \"normsoftmax\"", head(HeadKind::NormSoftmax, None, Some(20.0))),
        ("head = { name = \"a-softmax\", margin = 3 }", head(HeadKind::ASoftmax, Some(3.0), None)),
        (
            "head = { name = \"cosface\", margin = 0.2, scale = 30 }",
            head(HeadKind::CosFace, Some(0.2), Some(30.0)),
        ),
        (
            "head = { name = \"arcface\", scale = 16, learned_scale = true }",
            head(HeadKind::ArcFace, None, Some(16.0)).with_learned_scale().unwrap(),
        ),
        (
            "head = { name = \"l-softmax\", margin = 2, sample_rate = 0.1 }",
            head(HeadKind::LSoftmax, Some(2.0), None)
                .with_sample_rate(SampleRate::new(0.1).unwrap()),
        ),
    ] {
        let recipe = read(line);
        assert_eq!(recipe.head, expected, "{line}");
        let again = Recipe::from_toml(&recipe.to_toml(), "again.toml");
        assert_eq!(again, Ok(recipe), "{line}");
    }
}

#[test]
fn a_head_that_cannot_be_is_refused_with_its_reason() {
    for (line, words) in [
        ("head = \"arcfase\"", "unknown choice `arcfase`"),
        ("head = { name = \"arcface\", margn = 0.5 }", "unknown key `head.margn`"),
        ("head = { name = \"arcface\", margn = 0.5 }", "did you mean `margin`"),
        ("head = { name = \"arcface\", margin = 4 }", "from 0 to below π"),
        ("head = { name = \"cosface\", margin = -0.1 }", "from 0 to 2"),
        ("head = { name = \"a-softmax\", margin = 0.5 }", "from 1 to 1000"),
        ("head = { name = \"a-softmax\", scale = 64 }", "a-softmax has no scale"),
        ("head = { name = \"normsoftmax\", margin = 2 }", "normsoftmax has no margin"),
        ("head = { name = \"cosface\", scale = 0 }", "above 0 and at most 10000"),
        ("head = { name = \"l-softmax\", learned_scale = true }", "l-softmax has no scale"),
        ("head = { name = \"arcface\", sample_rate = 0 }", "above 0 and at most 1"),
        ("head = { name = \"arcface\", sample_rate = 1.5 }", "above 0 and at most 1"),
        (
            "head = { name = \"softmax\", sample_rate = 0.5 }\nloss = \"hinge\"",
            "must be softmax with the hinge loss",
        ),
        ("head = { margin = 4 }", "missing key `name`"),
        ("head = true", "the name of a head, or a table"),
        ("head = \"arcface\"\nmargin = 0.5", "duplicate field `head`"),
        ("head = \"arcface\"\nloss = \"hinge\"", "must be softmax with the hinge loss"),
        ("", "missing key `head`"),
    ] {
        let told = refused(line);
        assert!(told.contains(words), "{line}: {told}");
    }
}

#[test]
fn sampled_classes_need_sgd_with_plain_momentum() {
    let sampled =
        head(HeadKind::Softmax, None, None).with_sample_rate(SampleRate::new(0.5).unwrap());
    let recipe = Recipe::built_in("mnist").unwrap().with_head(sampled);
    assert_eq!(recipe.check(), Ok(()));
    for optimiser in [
        Optimiser::AdamW(AdamW::default()),
        Optimiser::Sgd(Sgd { nesterov: true, ..Sgd::default() }),
    ] {
        let told = recipe.clone().with_optimiser(optimiser).check().unwrap_err().to_string();
        assert!(told.contains("head.sample_rate") && told.contains("plain momentum"), "{told}");
    }
}

#[test]
fn only_a_change_to_an_added_or_subtracted_margin_sets_lambda_to_0() {
    let recipe = Recipe::built_in("mnist").unwrap();
    let lambda_with = |kind| recipe.clone().with_head(head(kind, None, None)).lambda;
    for kind in [HeadKind::LSoftmax, HeadKind::ASoftmax, HeadKind::Softmax, HeadKind::NormSoftmax] {
        assert_eq!(lambda_with(kind), recipe.lambda);
    }
    for kind in [HeadKind::CosFace, HeadKind::ArcFace] {
        assert_eq!(lambda_with(kind), Lambda::constant(0.0).unwrap());
        // A recipe that was written for such a margin keeps its own λ.
        let mut annealed = recipe.clone().with_head(head(kind, None, None));
        annealed.lambda = Lambda::AUTO;
        assert_eq!(annealed.with_head(head(kind, Some(0.1), None)).lambda, Lambda::AUTO);
    }
}

#[test]
fn heads_with_another_name_or_setting_are_other_experiments() {
    let recipe = Recipe::built_in("mnist").unwrap();
    let heads = [
        head(HeadKind::Softmax, None, None),
        head(HeadKind::LSoftmax, Some(4.0), None),
        head(HeadKind::ASoftmax, Some(4.0), None),
        head(HeadKind::NormSoftmax, None, None),
        head(HeadKind::NormSoftmax, None, Some(16.0)),
        head(HeadKind::NormSoftmax, None, None).with_learned_scale().unwrap(),
        head(HeadKind::CosFace, None, None),
        head(HeadKind::ArcFace, None, None),
        head(HeadKind::ArcFace, None, None).with_sample_rate(SampleRate::new(0.5).unwrap()),
        head(HeadKind::Softmax, None, None).with_sample_rate(SampleRate::new(0.5).unwrap()),
    ];
    for (index, one) in heads.into_iter().enumerate() {
        for (other_index, other) in heads.into_iter().enumerate() {
            let same =
                recipe.clone().with_head(one).is_same_experiment(&recipe.clone().with_head(other));
            assert_eq!(same, index == other_index, "{one} and {other}");
            let names = [one, other].map(HeadSettings::file_name);
            assert_eq!(names[0] == names[1], index == other_index, "{names:?}");
        }
    }
}
