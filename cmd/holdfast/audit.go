package main

import (
	"context"
	"fmt"
	"os/user"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type auditCommands struct{ *tool }

func (t auditCommands) command() *cli.Command {
	return noun("audit", "list who changed what, when and why",
		t.verb("list", "list the changes by people, and the trips of breakers, newest first",
			`Each change of a task, a group, a gate, a limit, a token or a setting has an entry with the values before
and after it; -o json shows them. If a worker or a janitor decided it, that is the actor: "--actor worker" lists the
trips of breakers (pause) and the resets after probes (resume). A page ends early after 4 MiB of values. For the next page, give
--before with the last id of this page.

Example:
  holdfast audit list --task 42 -o jsonl`,
			reads(t.tool, openCheckedStore, t.list), outputFlag()),
	)
}

func (t auditCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, r surface.AuditQuery) error {
	page, err := surface.ListAudit(ctx, b, r)
	if err != nil {
		return err
	}
	return printPage(t.tool, c, "entries", page.Entries, page.Next, "no changes match", "more entries match; for the next page, add --before %s",
		column[store.AuditEntry]{"id", func(e store.AuditEntry) string { return fmt.Sprint(e.ID) }},
		column[store.AuditEntry]{"at", func(e store.AuditEntry) string { return t.stamp(e.At) }},
		column[store.AuditEntry]{"actor", func(e store.AuditEntry) string { return e.Actor.Name }},
		column[store.AuditEntry]{"surface", func(e store.AuditEntry) string { return string(e.Surface) }},
		column[store.AuditEntry]{"action", func(e store.AuditEntry) string { return string(e.Action) }},
		column[store.AuditEntry]{"subject", auditSubject},
		column[store.AuditEntry]{"reason", func(e store.AuditEntry) string { return e.Reason }},
	)
}

// auditSubject returns the subject of an entry, such as "task 42".
func auditSubject(e store.AuditEntry) string {
	if e.Task != 0 {
		return "task " + e.Task.String()
	}
	return e.Subject
}

// actorVariable is the environment variable with the name of the person for whom a script runs commands.
const actorVariable = "HOLDFAST_ACTOR"

// actorFlags returns the flags of a command that changes tasks for a person.
func actorFlags() []cli.Flag {
	return append([]cli.Flag{&cli.StringFlag{Name: "reason", Usage: "why, as a `TEXT` of at most 1,000 characters for the audit log"}}, asFlag()...)
}

// asFlag returns the flag that names the person, for a command whose request has a reason of its own.
func asFlag() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "as", Usage: "the `NAME` for the audit log; default $" + actorVariable + ", or else the user of the operating system"},
	}
}

// actor returns the person who requests a change, for the audit log.
func (t *tool) actor(c *cli.Context) (store.Actor, error) {
	name := strings.TrimSpace(c.String("as"))
	if c.IsSet("as") && name == "" {
		return store.Actor{}, usageOf(commandName(c), "--as is empty")
	}
	if name == "" {
		name = strings.TrimSpace(t.variable(actorVariable))
	}
	if name == "" {
		name = "unknown"
		if current, err := user.Current(); err == nil { // without a name, the entry has only the time and the reason
			name = current.Username
		}
	}
	return store.Actor{Name: name, Surface: store.CommandLine, Reason: c.String("reason")}, nil
}
