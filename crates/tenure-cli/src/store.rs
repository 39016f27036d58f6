//! `tenure store init`: prepare a store that needs it.

use std::process::ExitCode;

use serde_json::json;

use crate::exit::{self, Failure};
use crate::output::OutputOptions;
use crate::postgres;
use crate::store_options::{self, StoreOptions};

/// Prepare a store.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Init(Init),
}

/// Put the schema `tenure` into a PostgreSQL database.
///
/// Everything is in that schema, and there is a role `tenure_member` with the rights that taking
/// part needs: GRANT it to the logins of your programs. The login of this command must be allowed
/// to create a schema and a role. A database that has the schema is left as it is. Other stores
/// need no preparation.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure store init --store postgres://owner@db.internal/app
  tenure store init --print | psql -d app")]
pub(crate) struct Init {
    /// Print the statements for PostgreSQL, and do nothing.
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    store: StoreOptions,
}

pub(crate) fn run(Command::Init(arguments): Command) -> Result<ExitCode, Failure> {
    if arguments.print {
        let statements = postgres::statements()?;
        arguments.output.print(&json!({ "statements": statements }), || statements.clone());
        return Ok(ExitCode::SUCCESS);
    }
    let config = store_options::load_to_look(arguments.store.loader()?)?;
    let shown = config.store.to_string();
    let Some(url) = config.store.url() else {
        return Err(Failure::new(exit::CONFIGURATION, "name the store with --store"));
    };
    let is_new = match postgres::is_meant(url.reveal()) {
        true => Some(postgres::install(url.reveal())?),
        false => {
            // Whoever misspelt it is told so, and not that nothing is to be done.
            tenure::backend::check_address(url.reveal()).map_err(tenure::Error::from)?;
            None
        }
    };
    let json = json!({ "store": shown, "installed": is_new == Some(true) });
    arguments.output.print(&json, || match is_new {
        Some(true) => format!(
            "{shown}: the schema tenure is there now; GRANT tenure_member TO the logins of your \
             programs\n"
        ),
        Some(false) => format!("{shown}: the schema tenure was there before\n"),
        None => format!("{shown}: a store of this kind needs no preparation\n"),
    });
    Ok(ExitCode::SUCCESS)
}
