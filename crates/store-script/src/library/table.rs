//! `table.concat`. The other functions of `table` call scripts or raise, and stand with the guards.

use std::ffi::c_int;

use super::{Entry, Output};
use crate::context::Context;
use crate::lua::{Kind, Raise, Stack};
use crate::number::to_c_integer;

/// Replacements in `table`.
pub(crate) const ENTRIES: &[Entry] = &[(c"concat", concat)];

const TABLE: c_int = 1;

fn concat(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    if stack.is_absent(2) {
        stack.set_top(stack.top().max(2));
        stack.push_bytes(b"")?;
        stack.replace(2);
    }
    let separator = stack.pin(2)?;
    if stack.kind(TABLE) != Kind::Table {
        return Err(Raise::Type(TABLE, c"table"));
    }
    let position = |stack: &Stack<'_>, index, default| match stack.is_absent(index) {
        true => Ok(default),
        false => stack.check_number(index).map(|number| to_c_integer(number) as i32),
    };
    let first = position(stack, 3, 1)?;
    let last = position(stack, 4, stack.raw_length(TABLE) as i32)?;
    let mut output = Output::new(context);
    for position in first..=last {
        context.spend(4)?;
        stack.get_item(TABLE, position);
        let item = stack.top();
        if !matches!(stack.kind(item), Kind::String | Kind::Number) {
            let kind = stack.kind(item).name();
            let text = format!("invalid value ({kind}) at index {position} in table for 'concat'");
            return Err(stack.fail(text));
        }
        stack.stringify(item);
        let text = stack.bytes(item).unwrap_or_default();
        output.extend(text)?;
        stack.pop(1);
        if position < last {
            output.extend(separator)?;
        }
    }
    output.push_onto(stack)?;
    Ok(1)
}
