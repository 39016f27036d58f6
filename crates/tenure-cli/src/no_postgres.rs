//! The replacement for stores on PostgreSQL in a program that was built without them.

use crate::doctor::Finding;
use crate::exit::{self, Failure};

pub(crate) fn is_meant(_: &str) -> bool {
    false
}

pub(crate) fn statements() -> Result<String, Failure> {
    Err(missing())
}

pub(crate) fn install(_: &str) -> Result<bool, Failure> {
    Err(missing())
}

pub(crate) fn resources(_: &str, _: &str) -> Result<Vec<(String, bool)>, Failure> {
    Err(missing())
}

pub(crate) fn examine(_: &str) -> Result<(Vec<Finding>, String), Failure> {
    Err(missing())
}

fn missing() -> Failure {
    let why = "this program was built without elections on PostgreSQL: build it with the feature \
               postgres";
    Failure::new(exit::CONFIGURATION, why)
}
