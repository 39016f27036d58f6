//! What a leader does in its own name: adds to two sets at a resource, one that takes writes from
//! anybody and one that checks tokens.
//!
//! The work is as careless as work in the field is: a thread that nothing cancels reads, thinks and
//! writes, and looks whether it leads only before it begins. A pause in between makes a stale
//! write, which the resource alone can refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Connection, ConnectionLike as _, RedisResult};
use tenure::Token;
use tenure::fence::{FencedError, FencedValue, FencedWrite};

use super::history::{Set, What};
use crate::clock;

/// How long one set is written to.
const WINDOW: Duration = Duration::from_secs(5);
/// Between reading a set and writing it.
const THINKS_FOR: Duration = Duration::from_millis(5);
/// Between two writes; a leader that is stopped is between reading and writing now and then.
const RESTS_FOR: Duration = Duration::from_millis(15);
/// Reading for the sake of writing brings the fence up: after it, no older leader writes.
const FENCED_READ: &str = "
    local highest = tonumber(redis.call('GET', KEYS[2]) or '0')
    if tonumber(ARGV[1]) < highest then return false end
    redis.call('SET', KEYS[2], ARGV[1])
    return redis.call('GET', KEYS[1]) or ''";

/// Writes to the resource while it leads, for ever.
pub struct Worker {
    /// Its own name, in front of everything it adds.
    pub name: String,
    /// The resource, as the `redis` crate takes it.
    pub resource: String,
    /// The token under which work runs now; 0 while none does.
    pub token: Arc<AtomicU64>,
}

impl Worker {
    /// Works for as long as the process lives; `say` is told every outcome. Ends with an error
    /// only when the resource, which no fault ever touches, fails.
    pub fn run(self, leads: impl Fn() -> bool, say: impl Fn(What)) -> RedisResult<()> {
        let mut connection = redis::Client::open(self.resource.as_str())?.get_connection()?;
        for number in 0_u64.. {
            std::thread::sleep(RESTS_FOR);
            let token = self.token.load(Ordering::Acquire);
            if token == 0 || !leads() {
                continue;
            }
            let window = clock::now().as_nanos() / WINDOW.as_nanos() as u64;
            let element = format!("{}.{number}", self.name);
            for fenced in [false, true] {
                let set = Set { fenced, window };
                say(match add(&mut connection, &set, token, &element)? {
                    true => What::Added { set, element: element.clone() },
                    false => What::Refused,
                });
            }
        }
        Ok(())
    }
}

/// Adds an element by reading the whole set and writing it back; false when it was refused.
fn add(connection: &mut Connection, set: &Set, token: u64, element: &str) -> RedisResult<bool> {
    let key = set.to_string();
    match set.fenced {
        false => {
            let held: Option<String> = redis::cmd("GET").arg(&key).query(connection)?;
            std::thread::sleep(THINKS_FOR);
            let value = joined(held, element);
            redis::cmd("SET").arg(&key).arg(value).query::<()>(connection)?;
            Ok(true)
        }
        true => {
            let fence = FencedValue::new(&key).expect("a short plain name");
            let mut read = redis::cmd("EVAL");
            read.arg(FENCED_READ).arg(2).arg(&key).arg(fence.fence_key()).arg(token);
            let Some(held) = read.query::<Option<String>>(connection)? else { return Ok(false) };
            std::thread::sleep(THINKS_FOR);
            let value = joined(Some(held), element);
            let token = Token::new(token).expect("a token that was granted");
            let write = FencedWrite::Set { value: value.as_bytes(), ttl: None };
            let reply = connection.req_command(&fence.command(token, &write))?;
            match FencedValue::outcome(token, &reply) {
                Ok(()) => Ok(true),
                Err(FencedError::Stale(_)) => Ok(false),
                Err(error) => panic!("the resource failed: {error}"),
            }
        }
    }
}

fn joined(held: Option<String>, element: &str) -> String {
    match held.filter(|held| !held.is_empty()) {
        Some(held) => format!("{held},{element}"),
        None => element.to_owned(),
    }
}

/// What all sets at the resource hold now.
pub fn read_all(resource: &str) -> RedisResult<Vec<What>> {
    let mut connection = redis::Client::open(resource)?.get_connection()?;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection)?;
    let mut found = Vec::new();
    for key in keys {
        // Fences have names of another form.
        let Ok(set) = key.parse::<Set>() else { continue };
        let held: String = redis::cmd("GET").arg(&key).query(&mut connection)?;
        let elements = held.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
        found.push(What::Holds { set, elements });
    }
    Ok(found)
}
