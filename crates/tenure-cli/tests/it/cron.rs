//! The recipe for cron in docs/command.md, followed to the letter by two hosts.

use std::path::Path;
use std::process::Command;
use std::thread;

use crate::stage::{CommandOutput, Kind, Stage, TENURE};

/// What the recipe says: a variable, and the command of its line.
struct Recipe {
    config: String,
    command: String,
}

impl Recipe {
    fn read() -> Self {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, section) = page.split_once("### From cron").expect("the page has the recipe");
        let (_, block) = section.split_once("```text\n").expect("the recipe shows a file");
        let mut lines = block.split("```").next().unwrap().lines();
        let config = lines.next().unwrap().strip_prefix("TENURE_CONFIG=").unwrap().to_owned();
        // Five fields of time, and the user.
        let command = lines.next().unwrap().split_whitespace().skip(6).collect::<Vec<_>>();
        Recipe { config, command: command.join(" ") }
    }

    /// The command as cron runs it, with the programs and the store of the test.
    fn run_by_cron(&self, stage: &Stage, more: impl Fn(&str) -> String) -> Command {
        let folder = stage.folder.path();
        let config = folder.join(Path::new(&self.config).file_name().unwrap());
        let url = stage.store.url();
        let text = format!("[store]\nurl = {url:?}\n\n[defaults]\nfresh_store = true\n");
        std::fs::write(&config, text).unwrap();
        let report = format!("sh -c 'echo $TENURE_TOKEN >> {}/report'", folder.display());
        let command = more(&self.command)
            .replace("/usr/local/bin/tenure", TENURE)
            .replace("/usr/local/bin/report", &report)
            .replace("\\%", "%");
        let mut cron = Command::new("/bin/sh");
        cron.env_clear().env("PATH", "/usr/bin:/bin").env("TENURE_CONFIG", &config);
        cron.args(["-c", &command]);
        cron
    }
}

/// How often the report was made after two hosts ran the line at the same time.
fn reports(more: impl Fn(&str) -> String + Copy + Sync) -> usize {
    let recipe = Recipe::read();
    let hour = |stage: &Stage| {
        let seconds = stage.store.cli(&["TIME"]).lines().next().map(str::parse::<u64>);
        seconds.expect("a server tells its time").unwrap() / 3600
    };
    loop {
        let stage = Stage::on(Kind::Own);
        let began_in = hour(&stage);
        let hosts: Vec<CommandOutput> = thread::scope(|scope| {
            let run = || scope.spawn(|| CommandOutput::of(recipe.run_by_cron(&stage, more)));
            let hosts = [run(), run()];
            hosts.map(|host| host.join().unwrap()).into()
        });
        assert!(hosts.iter().all(|said| said.code == 0), "{hosts:?}");
        // At the turn of an hour there are two ticks.
        if hour(&stage) == began_in {
            let made = std::fs::read_to_string(stage.folder.path().join("report")).unwrap();
            return made.lines().count();
        }
    }
}

#[test]
fn the_job_runs_once_per_hour() {
    assert_eq!(reports(str::to_owned), 1);
}

#[test]
fn the_job_runs_once_per_day_that_the_host_names() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command.md");
    let day = "--tick \"$(date +\\%F)\"";
    assert!(std::fs::read_to_string(page).unwrap().contains(day), "the page shows it so");
    assert_eq!(reports(|line| line.replace("--every 1h", day)), 1);
}
