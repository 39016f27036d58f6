//! One setting: its kind, and how texts become values of it.

/// Files that the server keeps in `dir` for itself: its lock, and how its last life ended.
const OWN_FILES: [&str; 3] = ["tenure.lock", "tenure.life", "tenure.life.new"];

/// The kind of values of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `yes` or `no`.
    YesNo,
    /// A whole number within these bounds.
    Integer(i64, i64),
    /// Bytes, with a unit such as `kb` or `gb` if need be, within these bounds.
    Memory(i64, i64),
    /// Bytes, or a percentage of `maxmemory`.
    MemoryOrPercent,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A file mode.
    Octal,
    /// Any text.
    Text,
    /// The name of a host, or nothing.
    Hostname,
    /// The address of this host as other servers are told it, or nothing.
    HostAddress {
        /// The longest.
        len_max: usize,
    },
    /// The name of a file or folder, without a path.
    FileName {
        /// What Redis calls it.
        what: &'static str,
        /// Whether there may be none.
        may_be_empty: bool,
    },
    /// Any number of words.
    Words,
    /// Pairs of seconds and changes.
    Save,
    /// Client classes with hard limit, soft limit and seconds.
    OutputLimits,
    /// Letters of keyspace event classes.
    EventClasses,
    /// Percentiles.
    Percentiles,
    /// What a signal does: `default`, or some of `save`, `nosave`, `now` and `force`.
    Shutdown,
    /// A name for the process, with variables in braces.
    TitleTemplate,
    /// `no`, `absolute`, or `yes`, which may be called `relative`.
    OomScore,
    /// Three scores for the kernel's out-of-memory killer.
    OomScores,
    /// Host and port of a primary, or `no one`.
    Primary,
}

/// How a server may end, in the order in which they are told; `default` is none of the others.
const SHUTDOWN_WORDS: [&str; 5] = ["default", "save", "nosave", "now", "force"];

/// One row of the table of settings.
#[derive(Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Another name, from older versions.
    pub alias: Option<&'static str>,
    /// What it takes.
    pub kind: Kind,
    /// Its value when nobody sets it.
    pub default: &'static str,
    /// Whether only the start can set it.
    pub is_fixed: bool,
    /// Whether CONFIG SET needs `enable-protected-configs`.
    pub is_protected: bool,
    /// Whether only its full name finds it: something for tests.
    pub is_hidden: bool,
    /// Whether its value must not be logged.
    pub is_secret: bool,
    /// A number below this counts as this one.
    pub at_least: Option<i64>,
    /// Why its value does not do what it does in Redis, if it does not.
    pub difference: Option<SettingDifference>,
}

/// Why a setting does not do what it does in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingDifference {
    /// Every value is kept and told, and changes nothing, for this reason.
    Inert(&'static str),
    /// Values other than the default are refused, for this reason.
    OnlyDefault(&'static str),
}

impl Setting {
    pub(super) const fn new(name: &'static str, kind: Kind, default: &'static str) -> Self {
        Self {
            name,
            alias: None,
            kind,
            default,
            is_fixed: false,
            is_protected: false,
            is_hidden: false,
            is_secret: false,
            at_least: None,
            difference: None,
        }
    }

    pub(super) const fn at_least(mut self, least: i64) -> Self {
        self.at_least = Some(least);
        self
    }

    pub(super) const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }

    pub(super) const fn fixed(mut self) -> Self {
        self.is_fixed = true;
        self
    }

    pub(super) const fn protected(mut self) -> Self {
        self.is_protected = true;
        self
    }

    pub(super) const fn hidden(mut self) -> Self {
        self.is_hidden = true;
        self
    }

    pub(super) const fn secret(mut self) -> Self {
        self.is_secret = true;
        self
    }

    pub(super) const fn inert(mut self, why: &'static str) -> Self {
        self.difference = Some(SettingDifference::Inert(why));
        self
    }

    pub(super) const fn only_default(mut self, why: &'static str) -> Self {
        self.difference = Some(SettingDifference::OnlyDefault(why));
        self
    }

    /// The canonical text of a value given as words. Fails with the reason in the words of
    /// Redis.
    pub fn parse(&self, words: &[&str]) -> Result<String, String> {
        let value = self.parse_kind(words)?;
        match self.difference {
            Some(SettingDifference::OnlyDefault(why)) if value != self.default => {
                Err(why.to_owned())
            }
            _ => Ok(value),
        }
    }

    fn parse_kind(&self, words: &[&str]) -> Result<String, String> {
        match self.kind {
            Kind::Words => return Ok(words.join(" ")),
            Kind::Save => return parse_save(words),
            Kind::OutputLimits => return parse_output_limits(words),
            Kind::Percentiles => return parse_percentiles(words),
            Kind::Shutdown => return parse_shutdown(words),
            Kind::OomScores => return parse_oom_scores(words),
            Kind::Primary => return parse_primary(words),
            _ => {}
        }
        let [word] = words else { return Err("wrong number of arguments".to_owned()) };
        self.parse_word(word)
    }

    fn parse_word(&self, word: &str) -> Result<String, String> {
        match self.kind {
            Kind::YesNo => match word.to_ascii_lowercase().as_str() {
                canonical @ ("yes" | "no") => Ok(canonical.to_owned()),
                _ => Err("argument must be 'yes' or 'no'".to_owned()),
            },
            Kind::Integer(min, max) => {
                let number = store_resp::parse_integer(word.as_bytes())
                    .ok_or("argument couldn't be parsed into an integer")?;
                within(number, min, max)
            }
            Kind::Memory(min, max) => {
                let bytes = memory(word).ok_or("argument must be a memory value")?;
                let number = within(bytes, min, max)?;
                Ok(self.at_least.filter(|least| bytes < *least).map_or(number, |it| it.to_string()))
            }
            Kind::MemoryOrPercent => match word.strip_suffix('%') {
                Some(percent) => match percent.parse::<u32>() {
                    Ok(percent) if percent <= 100 => Ok(format!("{percent}%")),
                    Ok(_) => Err("percentage argument must be less or equal to 100".to_owned()),
                    Err(_) => Err("argument must be a memory or percent value".to_owned()),
                },
                None => {
                    let bytes = memory(word).ok_or("argument must be a memory or percent value")?;
                    Ok(bytes.to_string())
                }
            },
            Kind::Octal => match u32::from_str_radix(word, 8) {
                Ok(mode) if mode <= 0o777 => Ok(format!("{mode:o}")),
                Ok(_) => Err("argument must be between 0 and 777 inclusive".to_owned()),
                Err(_) => Err("argument couldn't be parsed as an octal number".to_owned()),
            },
            Kind::Choice(choices) => {
                let found = choices.iter().find(|choice| choice.eq_ignore_ascii_case(word));
                found.map(|choice| (*choice).to_owned()).ok_or_else(|| {
                    let choices = choices.join(", ");
                    format!("argument(s) must be one of the following: {choices}")
                })
            }
            Kind::FileName { may_be_empty: false, .. } if word.is_empty() => {
                Err(format!("{} can't be empty", self.name))
            }
            Kind::FileName { what, .. } if word.contains(['/', '\\']) => {
                Err(format!("{} can't be a path, just a {what}", self.name))
            }
            Kind::FileName { .. } if OWN_FILES.contains(&word) => Err(format!(
                "{word} is a file that the server keeps for itself: choose another {}",
                self.name
            )),
            Kind::Hostname => parse_hostname(word),
            Kind::HostAddress { len_max } => parse_host_address(word, len_max),
            Kind::TitleTemplate if !is_title_template(word) => {
                Err("template format is invalid or contains unknown variables".to_owned())
            }
            Kind::OomScore => match word.to_ascii_lowercase().as_str() {
                "yes" | "relative" => Ok("yes".to_owned()),
                canonical @ ("no" | "absolute") => Ok(canonical.to_owned()),
                _ => Err("argument(s) must be one of the following: no, yes, relative, absolute"
                    .to_owned()),
            },
            Kind::EventClasses => super::events::parse(word)
                .map(super::events::letters)
                .ok_or_else(|| "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()),
            _ => Ok(word.to_owned()),
        }
    }
}

/// The longest name that DNS knows.
pub(super) const HOSTNAME_MAX: usize = 255;

fn parse_hostname(word: &str) -> Result<String, String> {
    if word.len() > HOSTNAME_MAX {
        return Err(format!("Hostnames must be less than {} characters", HOSTNAME_MAX + 1));
    }
    match word.bytes().all(is_hostname_byte) {
        true => Ok(word.to_owned()),
        false => Err("Hostnames may only contain alphanumeric characters, hyphens or dots".into()),
    }
}

fn parse_host_address(word: &str, len_max: usize) -> Result<String, String> {
    let is_part = |byte: u8| is_hostname_byte(byte) || b":%_".contains(&byte);
    match word.len() <= len_max && word.bytes().all(is_part) {
        true => Ok(word.to_owned()),
        false => Err("argument must be the address of this host, such as 10.0.0.7".to_owned()),
    }
}

fn is_hostname_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.'
}

fn within(number: i64, min: i64, max: i64) -> Result<String, String> {
    if (min..=max).contains(&number) {
        Ok(number.to_string())
    } else {
        Err(format!("argument must be between {min} and {max} inclusive"))
    }
}

/// `512`, `512mb`, `1GB`: powers of 1,000 without and of 1,024 with the `b`.
pub(crate) fn memory(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'-').count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1024,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    let number: i64 = number.parse().ok()?;
    (number >= 0).then(|| number.checked_mul(factor)).flatten()
}

/// The words of a value: CONFIG SET has all of them in one, with one space between two. A text that
/// is not quite that is refused, as in Redis: blanks alone would take all save points away.
fn separate<'a>(words: &[&'a str]) -> Vec<&'a str> {
    match words {
        [""] => Vec::new(),
        [one] => one.split(' ').collect(),
        several => several.to_vec(),
    }
}

fn parse_save(words: &[&str]) -> Result<String, String> {
    let words = separate(words);
    let numbers: Option<Vec<i64>> =
        words.iter().map(|word| word.parse::<i64>().ok().filter(|number| *number >= 0)).collect();
    match numbers {
        Some(numbers) if numbers.len() % 2 == 0 && numbers.chunks(2).all(|pair| pair[0] > 0) => {
            Ok(numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" "))
        }
        _ => Err("Invalid save parameters".to_owned()),
    }
}

fn parse_output_limits(words: &[&str]) -> Result<String, String> {
    let words = separate(words);
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    let mut canonical = Vec::new();
    for limit in words.chunks(4) {
        let class = match limit[0].to_ascii_lowercase().as_str() {
            "normal" => "normal",
            "slave" | "replica" => "slave",
            "pubsub" => "pubsub",
            _ => return Err("Invalid client class specified in buffer limit configuration.".into()),
        };
        let seconds = limit[3].parse::<i32>().ok().filter(|seconds| *seconds >= 0);
        let (Some(hard), Some(soft), Some(seconds)) = (memory(limit[1]), memory(limit[2]), seconds)
        else {
            return Err(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                    .to_owned(),
            );
        };
        canonical.push(format!("{class} {hard} {soft} {seconds}"));
    }
    Ok(canonical.join(" "))
}

/// The scores of a primary, a replica, and a process that saves.
fn parse_oom_scores(words: &[&str]) -> Result<String, String> {
    const SCORE_MAX: i32 = 2000;
    let words = separate(words);
    if words.len() != 3 {
        return Err("wrong number of arguments".to_owned());
    }
    let within = |score: &i32| (-SCORE_MAX..=SCORE_MAX).contains(score);
    if !words.iter().all(|word| word.parse().is_ok_and(|score| within(&score))) {
        let range = "elements must be between -2000 and 2000.";
        return Err(format!("Invalid oom-score-adj-values, {range}"));
    }
    Ok(words.join(" "))
}

fn parse_primary(words: &[&str]) -> Result<String, String> {
    match separate(words).as_slice() {
        [] => Ok(String::new()),
        [no, one] if no.eq_ignore_ascii_case("no") && one.eq_ignore_ascii_case("one") => {
            Ok(String::new())
        }
        [host, port] => match port.parse::<u16>() {
            Ok(_) if !is_host(host) => Err("Invalid master host".to_owned()),
            Ok(port) => Ok(format!("{host} {port}")),
            Err(_) => Err("Invalid master port".to_owned()),
        },
        _ => Err("wrong number of arguments".to_owned()),
    }
}

/// Whether this can be the name or address of a server. Blanks cannot be told in a line of a file.
pub(crate) fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn parse_shutdown(words: &[&str]) -> Result<String, String> {
    let words = separate(words);
    let is_known = |word: &&str| SHUTDOWN_WORDS.iter().any(|it| it.eq_ignore_ascii_case(word));
    if words.is_empty() || !words.iter().all(is_known) {
        let choices = SHUTDOWN_WORDS.join(", ");
        return Err(format!("argument(s) must be one of the following: {choices}"));
    }
    let has = |wanted: &str| words.iter().any(|word| word.eq_ignore_ascii_case(wanted));
    if has("save") && has("nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".to_owned());
    }
    let told: Vec<&str> = SHUTDOWN_WORDS[1..].iter().copied().filter(|word| has(word)).collect();
    Ok(if told.is_empty() { SHUTDOWN_WORDS[0].to_owned() } else { told.join(" ") })
}

/// Whether all variables of a template are known; `{{` is a brace.
fn is_title_template(text: &str) -> bool {
    const VARIABLES: [&str; 7] =
        ["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('{') {
        rest = match behind.strip_prefix('{') {
            Some(further) => further,
            None => match behind.split_once('}') {
                Some((name, further)) if VARIABLES.contains(&name) => further,
                _ => return false,
            },
        };
    }
    !text.is_empty()
}

/// Percentiles are kept as Redis tells them: with six decimals, without the zeros at the end.
fn parse_percentiles(words: &[&str]) -> Result<String, String> {
    let canonical: Result<Vec<String>, String> =
        separate(words).into_iter().map(parse_percentile).collect();
    Ok(canonical?.join(" "))
}

fn parse_percentile(word: &str) -> Result<String, String> {
    let number = store_types::number::parse_f64(word.as_bytes())
        .ok_or("Invalid latency-tracking-info-percentiles parameters")?;
    if !(0.0..=100.0).contains(&number) {
        let text = "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]";
        return Err(text.to_owned());
    }
    let text = format!("{number:.6}");
    Ok(text.trim_end_matches('0').trim_end_matches('.').to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn what_a_signal_does_is_told_in_the_order_of_redis() {
        for (words, told) in [
            (&["nosave", "force", "now"][..], Ok("nosave now force")),
            (&["force NOW"], Ok("now force")),
            (&["default", "save"], Ok("save")),
            (&["default"], Ok("default")),
            (&["save", "nosave"], Err("SAVE and NOSAVE")),
            (&["bogus"], Err("default, save, nosave, now, force")),
            (&[""], Err("one of the following")),
        ] {
            match (parse_shutdown(words), told) {
                (Ok(found), Ok(told)) => assert_eq!(found, told),
                (Err(reason), Err(told)) => assert!(reason.contains(told), "{reason}"),
                (found, _) => panic!("{words:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_value_of_several_words_has_one_space_between_two() {
        let of = |name: &str, words: &[&str]| Config::find(name).unwrap().parse(words).ok();
        for (name, words, value) in [
            ("save", &["100 1 50 2"][..], Some("100 1 50 2")),
            ("save", &["+5 01"], Some("5 1")),
            ("save", &[""], Some("")),
            ("save", &[" "], None),
            ("save", &["\t"], None),
            ("save", &["100  1"], None),
            ("save", &["100 1\n"], None),
            (
                "client-output-buffer-limit",
                &["pubsub 1 2 2147483647"],
                Some("pubsub 1 2 2147483647"),
            ),
            ("client-output-buffer-limit", &["pubsub 1 2 2147483648"], None),
            ("client-output-buffer-limit", &["pubsub 1 2 3 "], None),
            ("latency-tracking-info-percentiles", &["50 99"], Some("50 99")),
            ("latency-tracking-info-percentiles", &[" 50"], None),
            ("oom-score-adj-values", &["0  1 2"], None),
            ("replicaof", &["db 6379"], Some("db 6379")),
            ("replicaof", &["d b", "6379"], None),
            ("replicaof", &["", "6379"], None),
        ] {
            assert_eq!(of(name, words).as_deref(), value, "{name} {words:?}");
        }
    }

    #[test]
    fn a_backlog_that_is_too_small_is_taken_for_the_smallest() {
        let backlog = Config::find("repl-backlog-size").unwrap();
        for (word, size) in [("1", "16384"), ("16kb", "16384"), ("17kb", "17408")] {
            assert_eq!(backlog.parse(&[word]).as_deref(), Ok(size));
        }
        assert!(backlog.parse(&["0"]).is_err());
    }

    #[test]
    fn a_title_has_known_variables_only() {
        for good in ["{title} {listen-addr}", "--my--title", "{{{port}}", "}"] {
            assert!(is_title_template(good), "{good}");
        }
        for bad in ["", "{bogus}", "{title", "{}"] {
            assert!(!is_title_template(bad), "{bad}");
        }
    }

    #[test]
    fn memory_has_units_of_both_kinds() {
        for (text, bytes) in [
            ("100", Some(100)),
            ("1k", Some(1000)),
            ("1kb", Some(1024)),
            ("2MB", Some(2 << 20)),
            ("1gb", Some(1 << 30)),
            ("1tb", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(memory(text), bytes, "{text}");
        }
    }
}
