// SPDX-License-Identifier: GPL-3.0-or-later
//! Names of the FIFOs in front of the satellite link, as metrics have them.

use profile::{Profile, Qos};

use crate::config::Config;
use crate::links::classes;
use crate::network::of_platform;

/// Names of FIFOs, highest priority first, by direction in the order of
/// [`crate::directions::DIRECTIONS`] and by terminal.
pub type FifoNames = [Vec<Vec<String>>; 4];

/// Longest name of a FIFO in metrics, characters; more would be a label of any size.
const LONGEST_NAME: usize = 32;

/// Names of the FIFOs of a configuration's terminals: the gateway's where its frames have tags,
/// those of terminals with demand assignment, and of SCPC and random access where frames have tags.
/// A name is at most 32 letters, digits, `_`, `-` and `.`, other characters become `_`; where it is
/// empty or there already, its number, 1 first, is added.
#[must_use]
pub fn names(config: &Config, profile: &Profile) -> FifoNames {
    let is_shared = !config.terminals.is_empty();
    let platform = if is_shared {
        of_platform(config, profile)
    } else {
        vec![(profile.st.id, profile.clone())]
    };
    let mut names = FifoNames::default();
    for (_, seen) in &platform {
        let (gw, st) = (&seen.gw_qos, &seen.st_profile.qos);
        let has_fifos = match seen.return_link.scpc {
            Some(_) => classes(config, st).is_some(),
            None if seen.random_access().is_some() => classes(config, st).is_some(),
            None => is_shared || seen.is_on_demand(),
        };
        let of = |is_used: bool, qos: &Qos| if is_used { words(qos) } else { Vec::new() };
        names[0].push(of(classes(config, gw).is_some(), gw));
        names[1].push(of(has_fifos, st));
    }
    names
}

fn words(qos: &Qos) -> Vec<String> {
    let plain = |it: char| it.is_ascii_alphanumeric() || "_-.".contains(it);
    let mut words: Vec<String> = Vec::new();
    for (fifo, number) in qos.fifos.iter().zip(1..) {
        let characters = fifo.name.chars().take(LONGEST_NAME);
        let mut word: String = characters
            .map(|it| if plain(it) { it } else { '_' })
            .collect();
        if word.is_empty() || words.contains(&word) {
            word.truncate(LONGEST_NAME - 4);
            word = format!("{word}-{number}");
        }
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_alone as parse;
    use crate::testing::example;

    fn profile(name: &str) -> Profile {
        let dir = format!(
            "{}/../../opensand-profiles/{name}",
            env!("CARGO_MANIFEST_DIR")
        );
        profile::load(dir.as_ref()).unwrap()
    }

    #[test]
    fn p297_names_are_those_of_the_queues_that_there_are() {
        let of = |name: &str, profile: &Profile| {
            names(&parse(&example(name).to_string()).unwrap(), profile)
        };
        let five = ["NM", "EF", "SIG", "AF", "BE"].map(str::to_owned).to_vec();
        let none: Vec<String> = Vec::new();
        assert_eq!(
            of("geo", &profile("geo")),
            [vec![none.clone()], vec![none.clone()], vec![], vec![]]
        );
        let mut tagged = profile("geo-dama");
        let expected =
            |forward: &Vec<String>| [vec![forward.clone()], vec![five.clone()], vec![], vec![]];
        assert_eq!(of("geo-dama", &tagged), expected(&none));
        tagged.gw_qos.is_tagged = true;
        assert_eq!(of("geo-dama", &tagged), expected(&five));
        let mut continuous = profile("geo-scpc");
        let alone = [vec![none.clone()], vec![none.clone()], vec![], vec![]];
        assert_eq!(of("geo-scpc", &continuous), alone);
        continuous.st_profile.qos.is_tagged = true;
        assert_eq!(of("geo-scpc", &continuous)[1], [five]);
    }

    #[test]
    fn p298_names_are_short_plain_and_differ() {
        let mut qos = profile("geo").gw_qos;
        let long = "x".repeat(1000);
        let given = ["a b\"}\n", "a_b\"}\n", "", &long, &long];
        for (fifo, name) in qos.fifos.iter_mut().zip(given) {
            name.clone_into(&mut fifo.name);
        }
        let found = words(&qos);
        assert_eq!(found[..3], ["a_b___", "a_b___-2", "-3"]);
        assert!(
            found[3..]
                .iter()
                .all(|it| (1..=LONGEST_NAME).contains(&it.len()))
        );
        assert_ne!(found[3], found[4]);
    }
}
