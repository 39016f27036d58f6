//! The messages between wrapper and guard, over a pipe in each direction.
//!
//! Every message has a fixed length that a pipe delivers whole, so no message is ever half there.

use tenure_core::Moment;

use crate::process::{Deadline, Pid, Stray};

/// The length of an order in bytes.
pub const ORDER_LEN: usize = 32;
/// The length of a reply in bytes.
pub const REPLY_LEN: usize = 16;

/// An order to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Kill this process group at the deadline.
    Watch(Pid),
    /// The deadline, on the clock that counts through suspend.
    Until(Deadline),
    /// The group is gone, and so are its strays.
    Forget,
    /// This process belongs to the program, too, although it left the group.
    WatchStray(Stray),
    /// This process has ended.
    ForgetStray(Stray),
}

/// An order with the number that its reply carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedOrder {
    /// 1, 2, 3, … per guard.
    pub number: u64,
    /// The order.
    pub order: Order,
}

impl NumberedOrder {
    /// The order as bytes for the pipe.
    pub fn to_bytes(self) -> [u8; ORDER_LEN] {
        let of_stray = |stray: Stray| [stray.pid.get() as u64, stray.started];
        let (kind, values) = match self.order {
            Order::Watch(group) => (1, [group.get() as u64, 0]),
            Order::Until(Deadline { kill_at, ends_at }) => {
                (2, [kill_at.as_nanos(), ends_at.as_nanos()])
            }
            Order::Forget => (3, [0, 0]),
            Order::WatchStray(stray) => (4, of_stray(stray)),
            Order::ForgetStray(stray) => (5, of_stray(stray)),
        };
        let mut bytes = [0; ORDER_LEN];
        for (place, number) in
            bytes.chunks_exact_mut(8).zip([kind, self.number, values[0], values[1]])
        {
            place.copy_from_slice(&u64::to_ne_bytes(number));
        }
        bytes
    }

    /// Parses the bytes of an order; `None` if they are not valid.
    pub fn from_bytes(bytes: [u8; ORDER_LEN]) -> Option<Self> {
        let [kind, number, value, second] = numbers(&bytes);
        let pid = || Pid::new(i64::try_from(value).ok()?);
        let stray = || Some(Stray { pid: pid()?, started: second });
        let order = match kind {
            1 => Order::Watch(pid()?),
            2 => Order::Until(Deadline {
                kill_at: Moment::from_nanos(value),
                ends_at: Moment::from_nanos(second),
            }),
            3 => Order::Forget,
            4 => Order::WatchStray(stray()?),
            5 => Order::ForgetStray(stray()?),
            _ => return None,
        };
        Some(NumberedOrder { number, order })
    }
}

/// A reply of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It takes orders from now on.
    Ready,
    /// The order of this number was carried out.
    Took(u64),
    /// The deadline had passed before this order to watch: the program must not run.
    TooLate(u64),
    /// The deadline passed, so the program was killed.
    Killed,
    /// The deadline passed, and a process of the program could not be killed.
    Refused,
}

impl Reply {
    /// The reply as bytes for the pipe.
    pub fn to_bytes(self) -> [u8; REPLY_LEN] {
        let (kind, number) = match self {
            Reply::Ready => (1, 0),
            Reply::Took(number) => (2, number),
            Reply::TooLate(number) => (3, number),
            Reply::Killed => (4, 0),
            Reply::Refused => (5, 0),
        };
        let mut bytes = [0; REPLY_LEN];
        for (place, number) in bytes.chunks_exact_mut(8).zip([kind, number]) {
            place.copy_from_slice(&u64::to_ne_bytes(number));
        }
        bytes
    }

    /// Parses the bytes of a reply; `None` if they are not valid.
    pub fn from_bytes(bytes: [u8; REPLY_LEN]) -> Option<Self> {
        let [kind, number] = numbers(&bytes);
        Some(match kind {
            1 => Reply::Ready,
            2 => Reply::Took(number),
            3 => Reply::TooLate(number),
            4 => Reply::Killed,
            5 => Reply::Refused,
            _ => return None,
        })
    }
}

fn numbers<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    let mut numbers = [0; COUNT];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_ne_bytes(bytes.try_into().expect("a chunk of eight"));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_replies_survive_the_pipe() {
        let group = Pid::new(4711).unwrap();
        let stray = Stray { pid: group, started: u64::MAX };
        for order in [
            Order::Watch(group),
            Order::Until(Deadline { kill_at: Moment::from_nanos(7), ends_at: Moment::NEVER }),
            Order::Forget,
            Order::WatchStray(stray),
            Order::ForgetStray(stray),
        ] {
            let order = NumberedOrder { number: 7, order };
            assert_eq!(NumberedOrder::from_bytes(order.to_bytes()), Some(order));
        }
        for reply in
            [Reply::Ready, Reply::Took(3), Reply::TooLate(4), Reply::Killed, Reply::Refused]
        {
            assert_eq!(Reply::from_bytes(reply.to_bytes()), Some(reply));
        }
    }

    #[test]
    fn nonsense_is_no_order_and_nobody_is_group_1() {
        assert_eq!(NumberedOrder::from_bytes([0xff; ORDER_LEN]), None);
        assert_eq!(Reply::from_bytes([0xff; REPLY_LEN]), None);
        let order = NumberedOrder { number: 1, order: Order::Watch(Pid::new(2).unwrap()) };
        let mut bytes = order.to_bytes();
        bytes[16..24].copy_from_slice(&1_u64.to_ne_bytes());
        assert_eq!(NumberedOrder::from_bytes(bytes), None, "it would kill everybody");
    }
}
