//! `cargo xtask compat`: the same made-up words to our store and to redis-server, for longer, the
//! same scripts of real clients, the tests that clients were published with; and the sidecar under
//! tools of others.

mod clients;
mod install;
mod sentinels;
mod servers;
mod sidecar;
mod suites;

use std::collections::BTreeSet;
use std::process::Stdio;

use crate::command::{Command, Failure};
use crate::repository::cargo;

pub(crate) const COMMAND: Command = Command {
    name: "compat",
    summary: "compares the store with redis-server on made-up commands and real clients",
    details: "\
Prints, per family, how many replies were compared in RESP2 and RESP3 and how many runs ended in a
difference. Fails when there is any; each comes with its seed and the commands that led to it.

First single sessions, family by family. Then, one request at a time, what every command counts in
INFO, and in which order a session hears of its reply, the events of keys and the invalidations. Then
a crowd of sessions at once: transactions, blocking, tracking, MONITOR, pauses, channels,
events, scripts, users. Replies and messages are compared after every request, and now and then all
that the servers tell about themselves: INFO, CLIENT LIST, statistics, settings, logs. Both servers
are restarted in between, on their own files or on each other's, and their keys compared. What is
not compared is printed, with the reason.

  --seeds N       seeds per family and protocol (10 when left out)
  --commands N    commands per seed (1500 when left out)
  --family NAME   only families with this in their name, and neither counts nor crowd
  --seed S        the first seed, to repeat a run
  --clients       only the real clients, all of them
  --suite NAME    only this client: redis-py, celery, ioredis, bullmq, redis-py-sentinel,
                  ioredis-sentinel, redis-py-cluster, ioredis-cluster, schemathesis,
                  prometheus-client, typescript or node18; may be repeated

Then real clients are run on both servers:

  redis-py   a script of ours, and its own tests (release 5.0.8) in RESP2 and RESP3
  celery     its own tests (release 5.3.6) that use a server: broker, workers and results
  ioredis    a script of ours: pipelines, MULTI, scripts, streams, pub/sub
  bullmq     a script of ours: delayed, retried, repeated, rate-limited, prioritised, stalled and
             parent-child jobs
  redis-py-sentinel, ioredis-sentinel
             scripts of ours: their Sentinel support while the primary of three servers is shut down
             and three sentinels replace it, all real ones or all ours
  redis-py-cluster, ioredis-cluster
             fifty of their cluster clients write to three nodes of ours and three real ones while
             replicas take over, slots move and a replica migrates: nothing may be lost or done twice

Scripts (xtask/clients/) must print the same on both. Of foreign tests, each must end the same; what
passed, failed and was skipped is printed, and what is left out, with the reason. A test that ends
otherwise is run once more on both, since some count on time. Less than 90 % of what passes on
redis-server having run on our store is a failure.

Last, tools of others look at a sidecar and its clients: schemathesis makes up requests from
/openapi.json and checks the answers against it, prometheus-client parses the metrics, typescript
checks the types of the JavaScript client, and node18 runs it with the oldest Node that it is for.

Packages are installed into target/compat/, which takes a network, python3 with venv, node and npm;
where something is missing, a line says what, and that is no failure. Logs lie beside them.",
    run,
};

/// One session, family by family.
const FAMILIES: &str = "generate::made_up_commands_get_equal_replies";
/// What each command counts, in which order it is told, and many sessions at once.
const MORE: [&str; 3] = [
    "crowd::counts::made_up_commands_count_the_same_on_both_servers",
    "crowd::order::a_session_hears_of_its_request_in_the_order_of_redis",
    "crowd::a_crowd_of_sessions_hears_the_same_from_both_servers",
];
/// An option, and the variable by which the test hears of it.
const OPTIONS: [(&str, &str); 4] = [
    ("--seeds", SEEDS),
    ("--commands", "COMPAT_COMMANDS"),
    ("--family", "COMPAT_FAMILY"),
    ("--seed", "TESTKIT_SEED"),
];
const SEEDS: &str = "COMPAT_SEEDS";
const SEEDS_DEFAULT: &str = "10";

fn run(words: &[String]) -> Result<(), Failure> {
    match words {
        [only] if only == "--clients" => compare(&names()),
        [option, ..] if option == "--suite" => compare(&chosen(words)?),
        _ => {
            made_up(words)?;
            let is_whole = !words.iter().any(|word| word == "--family");
            if is_whole { compare(&names()) } else { Ok(()) }
        }
    }
}

fn names() -> BTreeSet<&'static str> {
    clients::names().chain(suites::names()).chain(sidecar::names()).collect()
}

/// The clients that `--suite NAME` names, once or more.
fn chosen(words: &[String]) -> Result<BTreeSet<&'static str>, Failure> {
    let known = names();
    let usage = |text: String| Failure::Usage(format!("compat: {text}"));
    let choice = |option: &[String]| match option {
        [option, name] if option == "--suite" => {
            known.iter().copied().find(|known| known == name).ok_or_else(|| {
                let known: Vec<&str> = known.iter().copied().collect();
                usage(format!("--suite {name}: there are {}", known.join(", ")))
            })
        }
        [option] if option == "--suite" => Err(usage("--suite needs a name".to_owned())),
        option => Err(usage(format!("{} does not go with --suite", option[0]))),
    };
    words.chunks(2).map(choice).collect()
}

/// Runs these clients, first our scripts and then their own tests.
fn compare(names: &BTreeSet<&str>) -> Result<(), Failure> {
    let mut differences = 0;
    for name in names {
        differences += clients::compare(name)?;
    }
    for name in names {
        differences += suites::compare(name)?;
    }
    for name in names {
        differences += sidecar::check(name)?;
    }
    match differences {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("compat: {count} differences, see above"))),
    }
}

fn made_up(words: &[String]) -> Result<(), Failure> {
    let mut command = cargo();
    command
        .args(["test", "--quiet", "--package", "store-server", "--test", "it", "--"])
        .args(["--exact", "--nocapture", FAMILIES])
        .env(SEEDS, SEEDS_DEFAULT)
        .stdin(Stdio::null());
    for option in words.chunks(2) {
        let (variable, value) = parse(option)?;
        command.env(variable, value);
    }
    if !words.iter().any(|word| word == "--family") {
        command.args(MORE);
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::Failed("compat: not equal, see above".to_owned())),
        Err(error) => Err(Failure::Failed(format!("compat: cannot start cargo: {error}"))),
    }
}

fn parse(option: &[String]) -> Result<(&'static str, &str), Failure> {
    let usage = |text: String| Err(Failure::Usage(format!("compat: {text}")));
    let known = OPTIONS.iter().find(|(name, _)| *name == option[0]);
    let Some((name, variable)) = known else {
        return usage(format!("there is no option {:?}", option[0]));
    };
    match option.get(1) {
        None => usage(format!("{name} needs a value")),
        Some(value) if *name != "--family" && value.parse::<u64>().is_err() => {
            usage(format!("{name} needs a number, not {value:?}"))
        }
        Some(value) => Ok((variable, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_chosen_by_name() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let two = chosen(&words("--suite bullmq --suite redis-py")).unwrap();
        assert_eq!(two.into_iter().collect::<Vec<_>>(), ["bullmq", "redis-py"]);
        for wrong in ["--suite", "--suite nosuch", "--suite celery --seeds 3"] {
            assert_eq!(chosen(&words(wrong)).unwrap_err().exit_code(), 64, "{wrong}");
        }
    }

    #[test]
    fn options_become_variables_and_wrong_ones_are_named() {
        let words = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        assert_eq!(parse(&words(&["--seeds", "3"])).unwrap(), ("COMPAT_SEEDS", "3"));
        assert_eq!(parse(&words(&["--family", "sets"])).unwrap(), ("COMPAT_FAMILY", "sets"));
        for wrong in [&["--seeds"][..], &["--seeds", "many"], &["--frobnicate", "1"]] {
            let failure = parse(&words(wrong)).unwrap_err();
            assert_eq!(failure.exit_code(), 64);
            assert!(failure.to_string().contains(wrong[0]), "{failure}");
        }
    }
}
