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
			`Each change of a task, a group, a gate, a limit, a token or a setting has an entry. CHANGES has the values that differ,
and -o json also all values before and after. An operation has one entry with its counts, and one for each later change
of its state, also when it stops or ends by itself. With --tasks, each task that it has changed also has one; --task
lists all changes of a task. If a worker or a janitor decided a change, that is the actor: "--action trip" lists the
trips of breakers, and "--actor worker" also their resets after probes (resume). A page ends early after 4 MiB of
values. For the next page, give --before with the last id of this page.

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
		column[surface.AuditEntry]{"id", func(e surface.AuditEntry) string { return fmt.Sprint(e.ID) }},
		column[surface.AuditEntry]{"at", func(e surface.AuditEntry) string { return t.stamp(e.At) }},
		column[surface.AuditEntry]{"actor", func(e surface.AuditEntry) string { return e.Actor.Name }},
		column[surface.AuditEntry]{"surface", func(e surface.AuditEntry) string { return string(e.Surface) }},
		column[surface.AuditEntry]{"action", func(e surface.AuditEntry) string { return string(e.Action) }},
		column[surface.AuditEntry]{"subject", auditSubject},
		column[surface.AuditEntry]{"reason", func(e surface.AuditEntry) string { return e.Reason }},
		column[surface.AuditEntry]{"changes", auditChanges},
	)
}

// auditSubject returns the subject of an entry, such as "task 42".
func auditSubject(e surface.AuditEntry) string {
	if e.Task != 0 {
		return "task " + e.Task.String()
	}
	return e.Subject
}

// auditChanges returns what differs between the values before and after a change, such as "state: dead to ready". For the
// first entry of an operation, it returns how far the operation is.
func auditChanges(e surface.AuditEntry) string {
	if e.Result != nil {
		return e.Result.String()
	}
	var changes []string
	for _, d := range e.Changes {
		name := strings.TrimPrefix(d.Path, "/")
		was, is := clipped(strings.Trim(d.Was, `"`), 40), clipped(strings.Trim(d.Is, `"`), 40)
		switch {
		case was == "":
			changes = append(changes, fmt.Sprintf("%s: %s", name, is))
		case is == "":
			changes = append(changes, fmt.Sprintf("%s: no longer %s", name, was))
		default:
			changes = append(changes, fmt.Sprintf("%s: %s to %s", name, was, is))
		}
	}
	return clipped(strings.Join(changes, "; "), 160)
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
