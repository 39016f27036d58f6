//! Which hooks an election has: those of the configuration, and those that the program adds.

use std::collections::BTreeMap;

use tenure::config::{Config, HooksConfig, WebhookConfig};

use super::{Hook, Webhook, WebhookError};
use crate::error::SidecarError;
use crate::follow::Release;

/// The hooks of every election, whether it is followed already or joined later.
#[derive(Debug, Default)]
pub(crate) struct HookPlan {
    for_all: Vec<Hook>,
    for_one: BTreeMap<String, Vec<Hook>>,
    after_hooks: bool,
    /// Checked when it was given.
    config: Option<Box<Config>>,
}

impl HookPlan {
    pub(crate) fn add(&mut self, hook: Hook) {
        self.for_all.push(hook);
    }

    pub(crate) fn add_for(&mut self, name: &str, hook: Hook) {
        self.for_one.entry(name.to_owned()).or_default().push(hook);
    }

    /// Whether terms of all elections are released only after the hooks on loss.
    pub(crate) fn release_after_hooks(&mut self, is_so: bool) {
        self.after_hooks = is_so;
    }

    /// Adds those of a configuration: an election that it does not name has those of `defaults`.
    pub(crate) fn configure(&mut self, config: &Config) -> Result<(), SidecarError> {
        check_hooks(config)?;
        self.config = Some(Box::new(config.clone()));
        Ok(())
    }

    fn configured(&self, name: &str) -> Option<&HooksConfig> {
        Some(&self.config.as_ref()?.election(name).hooks)
    }

    pub(super) fn hooks_of(&self, name: &str) -> Vec<Hook> {
        let configured = self.configured(name).map(hooks).transpose();
        let configured = configured.expect("they were checked when they were given");
        let own = self.for_one.get(name).into_iter().flatten();
        let added = self.for_all.iter().chain(own).cloned();
        configured.unwrap_or_default().into_iter().chain(added).collect()
    }

    pub(super) fn release_of(&self, name: &str) -> Release {
        let is_configured = self.configured(name).is_some_and(|hooks| hooks.on_loss_first);
        match self.after_hooks || is_configured {
            true => Release::AfterHooks,
            false => Release::AtOnce,
        }
    }
}

/// Checks that every hook of a configuration can be used. It calls none of them.
pub fn check_hooks(config: &Config) -> Result<(), SidecarError> {
    let named = config.elections.iter().map(|(name, election)| {
        let scope = format!("elections.{name}");
        (scope, &election.hooks)
    });
    let mut all = named.chain([("defaults".to_owned(), &config.defaults.hooks)]);
    all.try_for_each(|(scope, settings)| match hooks(settings) {
        Ok(_) => Ok(()),
        Err((name, source)) => {
            Err(SidecarError::Webhook { setting: format!("{scope}.hooks.{name}"), source })
        }
    })
}

/// The hooks of one election; the error has the name of the setting.
fn hooks(settings: &HooksConfig) -> Result<Vec<Hook>, (&'static str, WebhookError)> {
    let command = |command: &tenure::Secret| command.reveal().to_owned();
    let mut hooks = Vec::new();
    hooks.extend(settings.on_gain.as_ref().map(command).map(Hook::on_gain));
    hooks.extend(settings.on_loss.as_ref().map(command).map(Hook::on_loss));
    if let Some(settings) = &settings.on_gain_url {
        hooks.push(Hook::on_gain_url(webhook(settings).map_err(|why| ("on_gain_url", why))?));
    }
    if let Some(settings) = &settings.on_loss_url {
        hooks.push(Hook::on_loss_url(webhook(settings).map_err(|why| ("on_loss_url", why))?));
    }
    Ok(hooks)
}

fn webhook(settings: &WebhookConfig) -> Result<Webhook, WebhookError> {
    let mut webhook = Webhook::new(&settings.url)?;
    for (name, value) in &settings.headers {
        webhook = webhook.header(name, value)?;
    }
    match &settings.secret {
        Some(secret) => webhook.signed_with(secret),
        None => Ok(webhook),
    }
}
