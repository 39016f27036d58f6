//! Users as the rules that would make them.

use super::rules::RuleContext;
use super::user::{KeyPattern, Sanitize, Selector, User};
use crate::command::category;
use crate::registry::{Registry, RowId};

impl User {
    /// The flags in the order in which they are told.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.no_password {
            flags.push("nopass");
        }
        match self.sanitize {
            Sanitize::Unsaid => {}
            Sanitize::Yes => flags.push("sanitize-payload"),
            Sanitize::Skip => flags.push("skip-sanitize-payload"),
        }
        flags
    }

    /// The rules behind `user <name>` in a file.
    pub(crate) fn describe(&self, registry: &Registry) -> Vec<u8> {
        let mut words: Vec<Vec<u8>> =
            self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()).collect();
        words.extend(self.passwords.iter().map(|hash| format!("#{hash}").into_bytes()));
        words.extend(self.root.describe(registry));
        for selector in &self.selectors {
            let inner = selector.describe(registry).join(&b' ');
            words.push([b"(", inner.as_slice(), b")"].concat());
        }
        words.join(&b' ')
    }

    /// Its passwords, hashed.
    pub(crate) fn password_hashes(&self) -> &[String] {
        &self.passwords
    }

    /// The rules of the user itself and then of each selector, as ACL GETUSER tells them.
    pub(crate) fn described_selectors(&self, registry: &Registry) -> Vec<DescribedSelector> {
        self.all_selectors()
            .map(|selector| DescribedSelector {
                commands: selector.command_rules(registry),
                keys: selector.key_rules().join(&b' '),
                channels: match selector.all_channels {
                    true => b"&*".to_vec(),
                    false => selector.channel_rules().join(&b' '),
                },
            })
            .collect()
    }
}

/// One selector in words.
pub(crate) struct DescribedSelector {
    pub(crate) commands: String,
    pub(crate) keys: Vec<u8>,
    pub(crate) channels: Vec<u8>,
}

impl Selector {
    fn describe(&self, registry: &Registry) -> Vec<Vec<u8>> {
        let mut words = self.key_rules();
        match self.all_channels {
            true => words.push(b"&*".to_vec()),
            false => words.push(b"resetchannels".to_vec()),
        }
        words.extend(self.channel_rules());
        words.push(self.command_rules(registry).into_bytes());
        words
    }

    fn key_rules(&self) -> Vec<Vec<u8>> {
        let word = |key: &KeyPattern| {
            let prefix: &[u8] = match (key.read, key.write) {
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                _ => b"~",
            };
            [prefix, &key.pattern].concat()
        };
        if self.all_keys { vec![b"~*".to_vec()] } else { self.keys.iter().map(word).collect() }
    }

    fn channel_rules(&self) -> Vec<Vec<u8>> {
        self.channels.iter().map(|pattern| [b"&", pattern.as_slice()].concat()).collect()
    }

    /// Rules that give the same commands. What was said is not kept, only what may run, so the
    /// words are found anew: categories while they explain more than they get wrong, then single
    /// commands.
    fn command_rules(&self, registry: &Registry) -> String {
        let adds = !self.future_commands;
        let mut words = vec![if adds { "-@all".to_owned() } else { "+@all".to_owned() }];
        let mut made = Selector::new(false);
        if !adds {
            made.allow_all_commands();
        }
        let mut left = self.clone();
        let mut applied = 0;
        while let Some((bit, name)) = left.best_category(registry, applied, adds) {
            applied |= bit;
            let name_bytes = name.as_bytes();
            let known = "names of the table are known";
            made.set_category(registry, name_bytes, adds).expect(known);
            left.set_category(registry, name_bytes, !adds).expect(known);
            words.push(format!("{}@{name}", if adds { '+' } else { '-' }));
        }
        for row in registry.commands() {
            self.single_rules(registry, row, &mut made, &mut words);
        }
        words.join(" ")
    }

    /// The category that explains most of what is left.
    fn best_category(
        &self,
        registry: &Registry,
        applied: u32,
        adds: bool,
    ) -> Option<(u32, &'static str)> {
        let mut best = None;
        let (mut fewest_wrong, mut most_right) = (usize::MAX, 0);
        for (bit, name) in category::NAMES {
            if applied & bit != 0 {
                continue;
            }
            let of_it = |row: &RowId| category::of(registry.row(*row).command) & bit != 0;
            let (mut right, mut wrong) = (0, 0);
            for row in registry.ids().filter(of_it) {
                let is_right = self.commands.has(row) == adds;
                if is_right { right += 1 } else { wrong += 1 }
            }
            let is_better = wrong < fewest_wrong || wrong == fewest_wrong && right > most_right;
            if right > wrong && is_better {
                best = Some((*bit, *name));
                (fewest_wrong, most_right) = (wrong, right);
            }
        }
        best
    }

    fn single_rules(
        &self,
        registry: &Registry,
        row: RowId,
        made: &mut Selector,
        words: &mut Vec<String>,
    ) {
        let name = &registry.row(row).full_name;
        let allowed = self.commands.has(row);
        if allowed != made.commands.has(row) {
            words.push(format!("{}{name}", if allowed { '+' } else { '-' }));
            made.set_command(registry, row, allowed);
        }
        for sub in registry.subcommands(row) {
            self.single_rules(registry, sub, made, words);
        }
        if !allowed {
            let first_args = self.first_args.get(&row.index()).into_iter().flatten();
            words.extend(first_args.map(|arg| format!("+{name}|{}", String::from_utf8_lossy(arg))));
        }
    }
}

/// A user made of the rules in `words`, after its name. Fails with the rule and the reason.
pub(crate) fn user_from_words(
    rule_context: RuleContext<'_>,
    words: &[&[u8]],
) -> Result<User, (String, &'static str)> {
    let lossy = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let rules = super::rules::merge_selectors(words)
        .map_err(|at| (lossy(words[at]), "Unmatched parenthesis in selector definition"))?;
    let mut user = User::new(rule_context.all_channels);
    for rule in rules {
        user.apply(rule_context, &rule).map_err(|error| (lossy(&rule), error.text()))?;
    }
    Ok(user)
}
