//! What is told to whoever listens: log, channels, scripts.

/// Who should hear of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The log alone.
    Debug,
    /// The log and the channel of its name.
    Notice,
    /// Those, and the notification script.
    Warning,
}

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// To whom, in Redis's words.
    pub text: String,
}

macro_rules! event_kinds {
    ($($variant:ident $name:literal $level:ident,)*) => {
        /// All kinds of events, by the name of their channel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventKind {
            $(#[doc = $name] $variant,)*
        }

        impl EventKind {
            /// The name of the channel.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Who should hear of it.
            pub fn level(self) -> Level {
                match self { $(Self::$variant => Level::$level,)* }
            }
        }
    };
}

event_kinds! {
    Monitor "+monitor" Warning,
    SubjectivelyDown "+sdown" Warning,
    SubjectivelyUp "-sdown" Warning,
    ObjectivelyDown "+odown" Warning,
    ObjectivelyUp "-odown" Warning,
    NewEpoch "+new-epoch" Warning,
    Voted "+vote-for-leader" Warning,
    TryFailover "+try-failover" Warning,
    ElectedLeader "+elected-leader" Warning,
    SelectReplica "+failover-state-select-slave" Warning,
    SelectedReplica "+selected-slave" Warning,
    SendPromotion "+failover-state-send-slaveof-noone" Notice,
    WaitPromotion "+failover-state-wait-promotion" Notice,
    PromotedReplica "+promoted-slave" Warning,
    ReconfigureReplicas "+failover-state-reconf-slaves" Warning,
    ReconfigureSent "+slave-reconf-sent" Notice,
    ReconfigureBegun "+slave-reconf-inprog" Notice,
    ReconfigureDone "+slave-reconf-done" Notice,
    ReconfigureTimedOut "-slave-reconf-sent-timeout" Notice,
    ReconfigureSentLate "+slave-reconf-sent-be" Notice,
    NotElected "-failover-abort-not-elected" Warning,
    NoGoodReplica "-failover-abort-no-good-slave" Warning,
    PromotionTimedOut "-failover-abort-slave-timeout" Warning,
    FailoverEnd "+failover-end" Warning,
    FailoverEndForTimeout "+failover-end-for-timeout" Warning,
    SwitchPrimary "+switch-master" Warning,
    FoundReplica "+slave" Notice,
    FoundSentinel "+sentinel" Notice,
    Reboot "+reboot" Notice,
    RoleChanged "+role-change" Debug,
    RoleUnexpected "-role-change" Debug,
    ConvertToReplica "+convert-to-slave" Notice,
    FixReplica "+fix-slave-config" Notice,
    ConfigUpdateFrom "+config-update-from" Notice,
    SentinelAddressSwitch "+sentinel-address-switch" Notice,
    SentinelInvalidAddress "+sentinel-invalid-addr" Warning,
    ForgetPrimary "-monitor" Warning,
    ResetPrimary "+reset-master" Warning,
    Set "+set" Warning,
    ScriptError "-script-error" Warning,
    ScriptTimeout "-script-timeout" Warning,
    Tilt "+tilt" Warning,
    TiltEnd "-tilt" Warning,
}
