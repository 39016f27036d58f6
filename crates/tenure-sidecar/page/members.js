// Who takes part: a line per start of an instance, so that one that was restarted is told from the
// one before it.

import { arrange, duration, el, naturally, say, startOf, svg } from "./words.js";

export class Members {
  constructor(onHandOver) {
    this.onHandOver = onHandOver;
    this.rows = new Map();
    this.nobody = el("td", { colspan: 7, class: "quiet" });
    this.nobodyRow = el("tr", {}, this.nobody);
    this.body = el("tbody");
    const heads = ["Instance", "State", "Priority", "Heartbeat", "Version", "Metadata", ""];
    this.table = el("table", { class: "members" },
      el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))), this.body);
    this.node = el("div", { class: "scroll" }, this.table);
  }

  /** Rows stay what they are and only change their words: a button must not vanish under a finger. */
  show(election) {
    const members = [...election.view.members].sort((a, b) =>
      b.alive - a.alive || b.priority - a.priority || naturally(a.id, b.id));
    const rows = members.map((member) => {
      const row = this.rows.get(member.id) ?? new MemberRow(member, this.onHandOver);
      row.show(member, election);
      return row;
    });
    this.rows = new Map(rows.map((row) => [row.member.id, row]));
    const nodes = rows.map((row) => row.node);
    if (nodes.length === 0) {
      const seen = election.view.store.seen_ms_ago !== null;
      say(this.nobody, seen ? "Nobody takes part." : "Not known yet: the store has not answered.");
      nodes.push(this.nobodyRow);
    }
    // Many applications say neither.
    this.table.dataset.versions = String(members.some((member) => member.version));
    this.table.dataset.metadata = String(members.some((member) => Object.keys(member.metadata).length > 0));
    arrange(this.body, nodes);
  }
}

class MemberRow {
  constructor(member, onHandOver) {
    this.state = document.createTextNode("");
    this.priority = el("td", { class: "number" });
    this.level = svg("rect", { class: "level", height: 6, rx: 3 });
    this.ago = el("span");
    this.version = el("td", { class: "version" });
    this.metadata = el("td", { class: "metadata" });
    this.button = el("button", { class: "ghost", hidden: true, onclick: () => onHandOver(this.member) }, "Hand over…");
    this.node = el("tr", { data: { id: member.id } },
      el("th", { scope: "row", title: member.id }, member.instance,
        el("code", { class: "start" }, startOf(member)),
        member.is_self ? el("span", { class: "self" }, "this one") : null),
      el("td", {}, el("span", { class: "dot", "aria-hidden": "true" }), this.state),
      this.priority,
      el("td", { class: "beat" }, el("span", { class: "pulse" },
        svg("svg", { viewBox: "0 0 48 6", "aria-hidden": "true" },
          svg("rect", { class: "base", width: 48, height: 6, rx: 3 }), this.level),
        this.ago)),
      this.version, this.metadata,
      el("td", { class: "do" }, this.button));
  }

  show(member, election) {
    this.member = member;
    const { leader, unknown } = election.known();
    const beatAgo = member.beat_ms_ago + (unknown ? election.age() : 0);
    this.node.dataset.leads = member.leads && Boolean(leader);
    this.node.dataset.alive = member.alive && !unknown;
    say(this.state, memberState(member, unknown));
    say(this.priority, String(member.priority));
    const share = Math.max(0, Math.min(1, 1 - beatAgo / (member.ttl_ms * 3)));
    this.level.setAttribute("width", (48 * share).toFixed(1));
    say(this.ago, `${duration(beatAgo)} ago`);
    say(this.version, member.version);
    say(this.metadata, Object.entries(member.metadata).map(([name, value]) => `${name}=${value}`).join("  "));
    const canLead = member.ready && member.alive && !member.leads && !member.departing;
    this.button.hidden = !canLead || !leader || leader.foreign || !election.canBeAsked()
      || election.view.paused_for_ms !== null;
  }
}

function memberState(member, unknown) {
  if (unknown) return "unknown";
  if (!member.alive) return "silent";
  if (member.leads) return "leads";
  if (member.departing) return "leaving";
  if (member.stalled) return "work stalled";
  return member.ready ? "ready" : "not ready";
}
