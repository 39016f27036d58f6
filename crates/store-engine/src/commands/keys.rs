//! Keys whatever they hold.

use super::prelude::*;

pub(super) const TABLE: &[Command] = &[
    Command::new("del", AtLeast(2), WRITE, del)
        .keys(&[KeySpec::all(1, RM | DELETE)])
        .categories(category::KEYSPACE)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "1.0.0", "O(N)", "Removes keys."),
    Command::new("exists", AtLeast(2), READ | FAST, exists)
        .keys(&[KeySpec::all(1, RO)])
        .categories(category::KEYSPACE)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "1.0.0", "O(N)", "How many of the keys exist."),
    Command::new("touch", AtLeast(2), READ | FAST, touch)
        .keys(&[KeySpec::all(1, RO)])
        .categories(category::KEYSPACE)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "3.2.1", "O(N)", "Marks keys as just used."),
    Command::new("type", Exactly(2), READ | FAST, type_of)
        .keys(&[KeySpec::one(1, RO)])
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "1.0.0", "O(1)", "The kind of value at a key."),
    Command::new("unlink", AtLeast(2), WRITE | FAST, del)
        .keys(&[KeySpec::all(1, RM | DELETE)])
        .categories(category::KEYSPACE)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .docs(Group::Generic, "4.0.0", "O(1)", "Removes keys."),
];

fn del(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let removed = request.args_from(1).filter(|key| cx.db.delete(key)).count();
    cx.reply.count(removed);
    Ok(())
}

fn exists(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let there = cx
        .db
        .without_touching(|db| request.args_from(1).filter(|key| db.read(key).is_some()).count());
    cx.reply.count(there);
    Ok(())
}

fn touch(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let there = request.args_from(1).filter(|key| cx.db.read(key).is_some()).count();
    cx.reply.count(there);
    Ok(())
}

fn type_of(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let value = cx.db.without_touching(|db| db.read(request.arg(1)).map(|value| value.type_name()));
    cx.reply.simple(value.unwrap_or("none"));
    Ok(())
}
