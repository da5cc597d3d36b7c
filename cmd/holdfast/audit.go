package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

func (t auditCommands) command() *cli.Command {
	return noun("audit", "list who changed what, when and why",
		t.verb("list", "list the changes that people made, newest first",
			`Each change of a task, a group, a gate, a limit, a token or a setting has an entry with the values before
and after it; -o json shows them. A page ends early after 4 MiB of values. For the next page, give --before with the
last id of this page.

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

// auditSubject returns what an entry is about, such as "task 42".
func auditSubject(e store.AuditEntry) string {
	if e.Task != 0 {
		return "task " + e.Task.String()
	}
	return e.Subject
}
